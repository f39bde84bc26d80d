"""Helpers of layers: a number repeated as a tuple, and names in a state_dict without their prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any


def _ntuple(n: int) -> Callable[[Any], tuple[Any, ...]]:
    def spread(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    return spread


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Rename "<prefix>name" to "name" in place, in the versions that a state_dict carries too."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key.removeprefix(prefix)] = state_dict.pop(key)
    versions: dict[str, Any] = getattr(state_dict, "_metadata", None) or {}
    for key in list(versions):
        if key and prefix.startswith(f"{key}."):
            versions[""] = versions.pop(key)
        elif key.startswith(prefix):
            versions[key.removeprefix(prefix)] = versions.pop(key)


_single, _pair, _triple, _quadruple = _ntuple(1), _ntuple(2), _ntuple(3), _ntuple(4)
