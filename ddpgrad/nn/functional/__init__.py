"""The functions of `ddpgrad.nn.functional`: layers without their state."""

from typing import Any

from ...core.face import serve
from ...ops.dispatch.autocast import is_listed, under_autocast
from ...ops.dispatch.inplace import with_inplace


def _adapted(name: str, function: Any) -> Any:
    """Ops that are declared with `inplace` take it here; autocast casts the arguments of functions that it lists."""
    op = getattr(function, "op", None)
    if op is not None:
        return with_inplace(op) if op.takes_inplace else function
    listed = is_listed(name) and callable(function)
    return under_autocast(function) if listed else function


serve(__name__, adapt=_adapted)
