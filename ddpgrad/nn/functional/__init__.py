"""The functions of `ddpgrad.nn.functional`: layers without their state."""

from typing import Any

from ...core.face import serve
from ...core.overrides import overridable
from ...ops.dispatch.autocast import is_listed, under_autocast
from ...ops.dispatch.dtype_lists import REFUSED_BY_LAYERS, refusing
from ...ops.dispatch.inplace import with_inplace


def _adapted(name: str, function: Any) -> Any:
    """Ops that are declared with `inplace` take it here; functions that are listed are cast by autocast, or refuse dtypes."""
    op = getattr(function, "op", None)
    if op is not None:
        return with_inplace(op) if op.takes_inplace else function
    shown = under_autocast(function) if is_listed(name) and callable(function) else function
    if name in REFUSED_BY_LAYERS:
        shown = refusing(shown, REFUSED_BY_LAYERS[name])
    if callable(shown):
        shown = overridable(shown)
        shown.__dict__["__wrapped__"] = function
    return shown


serve(__name__, adapt=_adapted)
