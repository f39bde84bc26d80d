"""Functions of `ddpgrad.nn.functional`: what layers compute, without their state."""

from typing import Any

from ...core.face import serve
from ...ops.dispatch.autocast import is_listed, under_autocast


def _adapted(name: str, function: Any) -> Any:
    """Autocast casts the arguments of functions that it lists; ops look after themselves."""
    listed = is_listed(name) and callable(function) and not hasattr(function, "op")
    return under_autocast(function) if listed else function


serve(__name__, adapt=_adapted)
