"""The leaves of a nested state dict, by keys that are joined by dots, as PyTorch names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

from ...core.errors import CheckpointError
from ...core.tensor import Tensor
from ...launcher.checkpoint.shards import ROWS
from ..tensor import DTensor
from .api import telling_of
from .stateful import Stateful


class Leaf(NamedTuple):
    """`value`, which is `owner[name]`; no dict, save for an empty one and the rows of a DTensor."""

    owner: MutableMapping[Any, Any]
    name: Any
    value: Any


def leaves(state: Mapping[str, Any]) -> dict[str, Leaf]:
    """The leaves of `state` by key; CheckpointError where two have the same."""
    found: dict[str, Leaf] = {}
    for key, leaf in _walk(state, ""):
        if key in found:
            raise CheckpointError(
                f"the state dict has two values for the key {key!r}, since the keys of nested dicts are joined by dots: rename one"
            )
        found[key] = leaf
    return found


def _walk(state: Any, prefix: str) -> Iterator[tuple[str, Leaf]]:
    for name, value in state.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and value.keys() != {ROWS}:
            yield from _walk(value, f"{key}.")
        else:
            yield key, Leaf(state, name, value)


def mapped(state: Any, write: Callable[[str, Any], tuple[bool, Any]], prefix: str = "") -> dict[Any, Any]:
    """`state` with those leaves for which `write(key, value)` says so, and the values that it gives for them."""
    out: dict[Any, Any] = {}
    for name, value in state.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            out[name] = mapped(value, write, f"{key}.")
            continue
        wanted, made = write(key, value)
        if wanted:
            out[name] = made
    return out


def states(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """`state_dict` with the states of its Stateful objects in their places."""
    found: dict[str, Any] = {}
    for key, value in state_dict.items():
        found[key] = value
        if isinstance(value, Stateful) and not isinstance(value, type):
            with telling_of(f"the state_dict() of {key!r}, a {type(value).__name__}, failed"):
                found[key] = value.state_dict()
    return found


def is_divided(value: Any) -> bool:
    """Whether ranks have parts of `value`."""
    return isinstance(value, DTensor) and value.placements[0].is_shard()


def local(value: Tensor) -> Tensor:
    """What this rank has of `value`; memory is shared."""
    return value.to_local() if isinstance(value, DTensor) else value.detach()


def describe(value: Any) -> list[Any]:
    """Plain data that is the same for values that can stand for each other."""
    if not isinstance(value, Tensor):
        return ["data"]
    return ["rows" if is_divided(value) else "tensor", str(value.dtype), list(value.shape)]
