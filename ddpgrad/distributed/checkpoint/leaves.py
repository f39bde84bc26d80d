"""The leaves of a nested state dict, by keys that are joined by dots, as PyTorch names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

from ...core.errors import CheckpointError
from ...core.tensor import Tensor
from ...launcher.checkpoint.shards import LIST, ROWS
from ..tensor import DTensor
from .api import telling_of
from .stateful import Stateful


class Leaf(NamedTuple):
    """`value`, which is `owner[name]`; no container that is walked through."""

    owner: Any
    name: Any
    value: Any


def leaves(state: Mapping[str, Any]) -> dict[str, Leaf]:
    """The leaves of `state` by key; CheckpointError where two have the same.

    Dicts are walked through, and lists that hold tensors or dicts; other lists are plain data, and so is an empty dict.
    """
    found: dict[str, Leaf] = {}
    for key, leaf in _walk(state, ""):
        if key in found:
            raise CheckpointError(
                f"the state dict has two values for the key {key!r}, since the keys of nested dicts are joined by dots: rename one"
            )
        found[key] = leaf
    return found


def written(state: Any, write: Callable[[str, Any], tuple[bool, Any]], prefix: str = "") -> dict[str, Any]:
    """`state` with those leaves for which `write(key, value)` says so, and the values that it gives for them."""
    out: dict[Any, Any] = {}
    for name, value in _items(state):
        key, inner = f"{prefix}{name}", _inner(value)
        if inner is None:
            wanted, made = write(key, value)
        else:
            made = written(inner, write, f"{key}.")
            wanted = bool(made)
            made = {LIST: made} if isinstance(inner, list) else made
        if wanted:
            out[str(name) if isinstance(state, list) else name] = made
    return out


def _walk(state: Any, prefix: str) -> Iterator[tuple[str, Leaf]]:
    for name, value in _items(state):
        inner = _inner(value)
        if inner is None:
            yield f"{prefix}{name}", Leaf(state, name, value)
        else:
            yield from _walk(inner, f"{prefix}{name}.")


def _items(state: Any) -> Iterable[tuple[Any, Any]]:
    return enumerate(state) if isinstance(state, list) else state.items()


def _inner(value: Any) -> Any:
    """The container that is walked through for `value`; None for a leaf."""
    if isinstance(value, Mapping) and value and value.keys() != {ROWS}:
        return value[LIST] if value.keys() == {LIST} else value
    if isinstance(value, list) and any(isinstance(v, Tensor) or _inner(v) is not None for v in value):
        return value
    return None


def states(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """`state_dict` with the states of its Stateful objects in their places."""
    found: dict[str, Any] = {}
    for key, value in state_dict.items():
        found[key] = value
        if isinstance(value, Stateful) and not isinstance(value, type):
            with telling_of(f"the state_dict() of {key!r}, a {type(value).__name__}, failed"):
                found[key] = value.state_dict()
    return found


def is_divided(value: Any) -> TypeGuard[DTensor]:
    """Whether ranks have parts of `value`."""
    return isinstance(value, DTensor) and any(p.divides() for p in value.placements)


def local(value: Tensor) -> tuple[Tensor, range]:
    """What this rank has of `value`, and which rows that is. Memory is shared but where columns were made into rows."""
    if not isinstance(value, DTensor):
        return value.detach(), range(len(value) if value.ndim else 0)
    rows = value.by_rows()
    return rows.part(), rows.local_rows


def describe(value: Any) -> list[Any]:
    """Plain data that is the same for values that can stand for each other."""
    if not isinstance(value, Tensor):
        return ["data"]
    return ["rows" if is_divided(value) else "tensor", value.dtype.name, list(value.shape)]
