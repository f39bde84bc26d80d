"""PyTorch's levels of checks, which programs read and set: here all that they switch on is always checked."""

from __future__ import annotations

import enum

from ..core import environment
from ..core.errors import LaunchError

_chosen: list[DebugLevel] = []


class DebugLevel(enum.Enum):
    """How much PyTorch would check."""

    OFF, INFO, DETAIL = 0, 1, 2


def get_debug_level() -> DebugLevel:
    """What was set, by `set_debug_level` or TORCH_DISTRIBUTED_DEBUG. LaunchError for a level that there is not."""
    return _chosen[-1] if _chosen else DebugLevel[environment.distributed_debug()]


def set_debug_level(level: DebugLevel) -> None:
    """Let `get_debug_level` return `level`."""
    _chosen[:] = [level]


def set_debug_level_from_env() -> None:
    """Let `get_debug_level` return what TORCH_DISTRIBUTED_DEBUG says; ValueError for a level that there is not."""
    try:
        environment.distributed_debug()
    except LaunchError as error:
        raise ValueError(f"The value of {error}") from None
    _chosen.clear()
