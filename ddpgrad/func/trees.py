"""Trees: nested tuples, lists, dictionaries and registered containers, flattened into leaves and rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..utils.tree_nodes import SUPPORTED_NODES

Rebuild = Callable[[Sequence[Any]], Any]


def is_batch(leaf: Any) -> bool:
    """Whether `leaf` is a collection with batch dimensions, such as a TensorDict, which vmap takes as it takes a tensor."""
    return hasattr(type(leaf), "_add_batch_dim")


def flatten(tree: Any) -> tuple[list[Any], Rebuild]:
    """The leaves of `tree` from left to right, and a function that makes such a tree of as many other leaves."""
    if is_batch(tree):
        return [tree], lambda leaves: leaves[0]
    if (node := SUPPORTED_NODES.get(type(tree))) is not None:
        children, context = node.flatten_fn(tree)
        children = list(children)
        make: Callable[[list[Any]], Any] = lambda values: node.unflatten_fn(values, context)  # noqa: E731
    elif isinstance(tree, dict):
        keys, children = list(tree), list(tree.values())
        make = lambda values: type(tree)(zip(keys, values, strict=True))  # noqa: E731
    elif isinstance(tree, (tuple, list)):
        children = list(tree)
        named = hasattr(tree, "_fields")
        make = lambda values: type(tree)(*values) if named else type(tree)(values)  # noqa: E731
    else:
        return [tree], lambda leaves: leaves[0]
    parts = [flatten(child) for child in children]
    counts = [len(leaves) for leaves, _ in parts]

    def rebuild(leaves: Sequence[Any]) -> Any:
        values, start = [], 0
        for (_, again), count in zip(parts, counts, strict=True):
            values.append(again(leaves[start : start + count]))
            start += count
        return make(values)

    return [leaf for leaves, _ in parts for leaf in leaves], rebuild


def alike(a: Any, b: Any) -> bool:
    """Whether two trees have the same structure."""
    if isinstance(a, dict):
        return type(a) is type(b) and a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    return not isinstance(b, (dict, tuple, list))


def outline(tree: Any) -> str:
    """The structure of `tree`, for messages: its leaves are stars."""
    leaves, rebuild = flatten(tree)
    return repr(rebuild([_STAR] * len(leaves)))


class _Star:
    def __repr__(self) -> str:
        return "*"


_STAR = _Star()


def spread(prefix: Any, tree: Any, name: str) -> list[Any]:
    """`prefix`, a tree that may end where `tree` goes on, with its ends repeated for each leaf of `tree`."""
    if isinstance(prefix, (tuple, list)) and isinstance(tree, list if isinstance(prefix, list) else tuple):
        if len(prefix) != len(tree):
            raise ValueError(
                f"{name} is not compatible with the structure of the values: {prefix} for {len(tree)} of them"
            )
        return [end for p, t in zip(prefix, tree, strict=True) for end in spread(p, t, name)]
    if isinstance(prefix, dict) and isinstance(tree, dict):
        if prefix.keys() != tree.keys():
            raise ValueError(f"{name} has keys {sorted(prefix)}, the values have {sorted(tree)}")
        return [end for key, child in tree.items() for end in spread(prefix[key], child, name)]
    if isinstance(prefix, (tuple, list, dict)):
        raise ValueError(
            f"{name} is not compatible with the structure of the values: {prefix} for {type(tree).__name__}"
        )
    return [prefix] * len(flatten(tree)[0])
