"""Nested state dicts and flat ones, whose keys are joined by dots, as PyTorch names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from ...core.tensor import Tensor

OBJ_PATH = tuple[str | int, ...]
FLATTEN_MAPPING = dict[str, OBJ_PATH]


class Leaf(NamedTuple):
    """`value`, which is `owner[name]`; no container that is walked through. path: its keys as texts and its indices."""

    path: OBJ_PATH
    owner: Any
    name: Any
    value: Any

    @property
    def key(self) -> str:
        return ".".join(map(str, self.path))


def leaves(state: Mapping[Any, Any], is_element: Callable[[Any], bool] | None = None) -> Iterator[Leaf]:
    """The leaves of `state`. Dicts are walked through, and lists that hold tensors, dicts with anything, or such lists."""
    for name, value in state.items():
        yield from _below(Leaf((str(name),), state, name, value), is_element or _is_tensor)


def former_leaves(state: Mapping[Any, Any]) -> Iterator[Leaf]:
    """The same as PyTorch before 2.4 had it: dicts that hold no tensors, dicts or lists of such are leaves."""
    for name, value in state.items():
        yield from _below(Leaf((str(name),), state, name, value), _is_tensor, former=True)


def _below(leaf: Leaf, is_element: Callable[[Any], bool], former: bool = False) -> Iterator[Leaf]:
    value = leaf.value
    if isinstance(value, Mapping) and not (former and _ends(value.values(), is_element, former)):
        items: Any = ((str(name), name, item) for name, item in value.items())
    elif isinstance(value, list) and not _ends(value, is_element, former):
        items = ((i, i, item) for i, item in enumerate(value))
    else:
        yield leaf
        return
    for step, name, item in items:
        yield from _below(Leaf((*leaf.path, step), value, name, item), is_element, former)


def _ends(values: Any, is_element: Callable[[Any], bool], former: bool) -> bool:
    """Whether what contains `values` is a leaf."""
    for value in values:
        if isinstance(value, Mapping):
            if not (former and _ends(value.values(), is_element, former)):
                return False
        elif isinstance(value, list) and not _ends(value, is_element, former):
            return False
        if is_element(value):
            return False
    return True


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def traverse_state_dict(
    state_dict: Mapping[str, Any],
    visitor: Callable[[OBJ_PATH, Any], None],
    keep_traversing: Callable[[Any], bool] | None = None,
) -> None:
    """Call `visitor(path, value)` for each leaf. keep_traversing: for which items a list is walked through, by default tensors."""
    for leaf in leaves(state_dict, keep_traversing):
        visitor(leaf.path, leaf.value)


def by_key(found: Iterator[Leaf]) -> dict[str, Leaf]:
    """Leaves by key; ValueError where two have the same."""
    known: dict[str, Leaf] = {}
    for leaf in found:
        if leaf.key in known:
            raise ValueError(
                f"duplicated flatten key {leaf.key}: the keys of nested dicts are joined by dots: rename one"
            )
        known[leaf.key] = leaf
    return known


def flatten_state_dict(state_dict: Mapping[str, Any]) -> tuple[dict[str, Any], FLATTEN_MAPPING]:
    """`state_dict` in one level of keys, and the path that each key stands for."""
    found = by_key(leaves(state_dict))
    return {key: leaf.value for key, leaf in found.items()}, {key: leaf.path for key, leaf in found.items()}


def unflatten_state_dict(state_dict: Mapping[str, Any], mapping: FLATTEN_MAPPING) -> dict[str, Any]:
    """The inverse of `flatten_state_dict`."""
    nested: dict[str, Any] = {}
    for key, value in state_dict.items():
        set_element(nested, mapping[key], value)
    return nested


def set_element(root_dict: dict[str, Any], path: OBJ_PATH, value: Any) -> None:
    """Put `value` at `path` below `root_dict`; containers that are not there yet are made: lists for numbers, dicts for texts."""
    at: Any = root_dict
    for step, after in pairwise(path):
        made: Any = {} if isinstance(after, str) else []
        if isinstance(at, Mapping):
            at = at.setdefault(step, made)  # type: ignore[attr-defined]
            continue
        _reach(at, step)
        if at[step] is None:
            at[step] = made
        at = at[step]
    if isinstance(path[-1], int):
        _reach(at, path[-1])
    at[path[-1]] = value


def get_element(root_dict: Mapping[str, Any], path: OBJ_PATH, default_value: Any = None) -> Any:
    """What is at `path` below `root_dict`, or `default_value`."""
    at: Any = root_dict
    for step in path:
        if not (step < len(at) if isinstance(step, int) and isinstance(at, list) else _has(at, step)):
            return default_value
        at = at[step]  # type: ignore[index]
    return at


def _has(at: Any, step: Any) -> bool:
    return isinstance(at, Mapping) and step in at


def _reach(at: list[Any], index: Any) -> None:
    at.extend([None] * (index + 1 - len(at)))


def print_tensor(path: OBJ_PATH, value: Any, print_fun: Callable[[str], None] = print) -> None:
    """A visitor for `traverse_state_dict`: says what is at `path`."""
    what = f"Tensor size: {value.size()}" if isinstance(value, Tensor) else f"Type: {type(value)}"
    print_fun(f"{path} {what}")
