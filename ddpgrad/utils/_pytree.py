"""`torch.utils._pytree`: nested containers, flattened into leaves, rebuilt, mapped.

A container is of a registered type, exactly: tuple, list, dict, namedtuple, Size, OrderedDict, defaultdict, deque, and
what `register_pytree_node` and its like add. All else is a leaf, None and instances of subclasses included.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .tree_nodes import (  # noqa: F401 - for users
    SUPPORTED_NODES,
    Context,
    NodeDef,
    _dict_flatten,
    _dict_flatten_with_keys,
    _dict_unflatten,
    _list_flatten,
    _list_flatten_with_keys,
    _list_unflatten,
    _NamedTuple,
    is_namedtuple,
    is_namedtuple_class,
    is_namedtuple_instance,
    is_structseq,
    is_structseq_instance,
    register_constant,
    register_dataclass,
    register_pytree_node,
)
from .tree_path import GetAttrKey, KeyPath, MappingKey, SequenceKey, key_get, keystr  # noqa: F401 - for users

PyTree = Any
IsLeaf = Callable[[Any], bool] | None


def _get_node_type(tree: Any) -> Any:
    cls = type(tree)
    return _NamedTuple if cls not in SUPPORTED_NODES and is_namedtuple_class(cls) else cls


def _stops(tree: Any, is_leaf: IsLeaf) -> bool:
    return _get_node_type(tree) not in SUPPORTED_NODES or (is_leaf is not None and is_leaf(tree))


def tree_is_leaf(tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """True when `tree` is no container, or `is_leaf(tree)` says that it counts as none."""
    return _stops(tree, is_leaf)


_is_leaf = tree_is_leaf  # as older programs call it


_DICTS = {dict, OrderedDict, defaultdict}  # they may stand for one another


class TreeSpec:
    """The shape of a tree without its leaves: type, context and the shapes of the children. Compares by value."""

    def __init__(
        self, type: Any, context: Context = None, children_specs: list[TreeSpec] | None = None
    ) -> None:
        self.type = type
        self.context = context
        self.children_specs = [] if children_specs is None else children_specs
        self.num_children = len(self.children_specs)
        self.num_leaves = sum(child.num_leaves for child in self.children_specs) if type is not None else 1
        self.num_nodes = 1 + sum(child.num_nodes for child in self.children_specs)

    def is_leaf(self) -> bool:
        """True for the shape of a leaf."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """The shapes of the children."""
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        """The shape of one child."""
        return self.children_specs[index]

    def unflatten(self, leaves: Iterable[Any]) -> PyTree:
        """The tree of this shape with these leaves; ValueError when there are more or fewer than it has."""
        values = list(leaves)
        if len(values) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(values)} but the spec refers to a pytree that "
                f"holds {self.num_leaves} items ({self})."
            )
        return self._filled(iter(values))

    def _filled(self, leaves: Iterator[Any]) -> PyTree:
        if self.is_leaf():
            return next(leaves)
        children = [child._filled(leaves) for child in self.children_specs]
        return SUPPORTED_NODES[self.type].unflatten_fn(children, self.context)

    def flatten_up_to(self, tree: PyTree) -> list[PyTree]:
        """The parts of `tree` that stand where this shape has leaves; ValueError where `tree` is of another shape."""
        if self.is_leaf():
            return [tree]
        kind = _get_node_type(tree)
        if kind is not self.type and not {kind, self.type} <= _DICTS:
            raise ValueError(f"Node type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        children = list(children)
        if kind in _DICTS:
            keys = self.context[1] if self.type is defaultdict else self.context
            if set(keys) != set(tree):
                raise ValueError(
                    f"Node keys mismatch; expected {sorted(keys, key=str)}, but got {sorted(tree, key=str)}."
                )
            children = [tree[key] for key in keys]
        elif context != self.context:
            raise ValueError(
                f"Node context mismatch for custom node type {kind!r}: {context!r}, not {self.context!r}."
            )
        if len(children) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(children)}.")
        return [
            part
            for spec, child in zip(self.children_specs, children, strict=True)
            for part in spec.flatten_up_to(child)
        ]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        mine, its = ((spec.type, spec.context, spec.children_specs) for spec in (self, other))
        return mine == its

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves, self.num_nodes))

    def __repr__(self) -> str:
        return self._text(0)

    def _text(self, indent: int) -> str:
        if self.is_leaf():
            return "*"
        name = getattr(self.context if self.type is _NamedTuple else self.type, "__name__", str(self.type))
        indent += 2
        parts = f",\n{' ' * indent}".join(child._text(indent) for child in self.children_specs)
        return f"TreeSpec({name}, {self.context}, [{parts}])"


PyTreeSpec = TreeSpec


class LeafSpec(TreeSpec):
    """The shape of a leaf."""

    def __init__(self) -> None:
        super().__init__(None)


def _flatten(tree: Any, is_leaf: IsLeaf, leaves: list[Any]) -> TreeSpec:
    if _stops(tree, is_leaf):
        leaves.append(tree)
        return LeafSpec()
    kind = _get_node_type(tree)
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(child, is_leaf, leaves) for child in children])


def tree_flatten(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of `tree` from left to right, and its shape."""
    leaves: list[Any] = []
    spec = _flatten(tree, is_leaf, leaves)
    return leaves, spec


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The tree of that shape with these leaves: the inverse of `tree_flatten`."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got {type(treespec)}."
        )
    return treespec.unflatten(leaves)


def tree_iter(tree: PyTree, is_leaf: IsLeaf = None) -> Iterator[Any]:
    """The leaves of `tree` from left to right, one by one."""
    if _stops(tree, is_leaf):
        yield tree
    else:
        for child in SUPPORTED_NODES[_get_node_type(tree)].flatten_fn(tree)[0]:
            yield from tree_iter(child, is_leaf)


def tree_leaves(tree: PyTree, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of `tree` from left to right."""
    return list(tree_iter(tree, is_leaf))


def tree_structure(tree: PyTree, is_leaf: IsLeaf = None) -> TreeSpec:
    """The shape of `tree`."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """A tree like `tree`, of func(leaf, parts of `rests` at its place). `rests` may go on where `tree` ends."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(spec.flatten_up_to(rest) for rest in rests)]
    return spec.unflatten(map(func, *columns))


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Calls `func` as `tree_map` does, for its effect, and returns `tree`."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _only(kinds: Any, func: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if not isinstance(kinds, type | tuple) and callable(kinds):
        return lambda leaf: func(leaf) if kinds(leaf) else leaf
    return lambda leaf: func(leaf) if isinstance(leaf, kinds) else leaf


def tree_map_only(kinds: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """`tree_map`, where leaves that are not of `kinds` (a type, a tuple of types or a predicate) stay as they are."""
    return tree_map(_only(kinds, func), tree, is_leaf=is_leaf)


def tree_map_only_(kinds: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Calls `func` on the leaves of `kinds`, for its effect, and returns `tree`."""
    tree_map_only(kinds, func, tree, is_leaf)
    return tree


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` holds for every leaf."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` holds for some leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(kinds: Any, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` holds for every leaf of `kinds`, a type or a tuple of types."""
    return all(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, kinds))


def tree_any_only(kinds: Any, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` holds for some leaf of `kinds`."""
    return any(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, kinds))


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> list[Any]:
    """The leaves of all arguments."""
    return tree_leaves((*args, *kwargs.values()))


def _broadcast_to_and_flatten(tree: PyTree, treespec: TreeSpec, is_leaf: IsLeaf = None) -> list[Any] | None:
    """The leaves of `tree`, each as often as the shape has leaves in its place; None where `tree` goes on, or differs."""
    if _stops(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or _get_node_type(tree) is not treespec.type:
        return None
    children, context = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    children = list(children)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    parts = [
        _broadcast_to_and_flatten(*pair, is_leaf)
        for pair in zip(children, treespec.children_specs, strict=True)
    ]
    return None if None in parts else [leaf for part in parts for leaf in part or ()]


def treespec_pprint(treespec: TreeSpec) -> str:
    """The shape as the tree with `*` in place of leaves."""
    star = type("_", (), {"__repr__": lambda _: "*"})()
    return repr(treespec.unflatten([star] * treespec.num_leaves))


def _walk(tree: Any, path: KeyPath, is_leaf: IsLeaf) -> Iterator[tuple[KeyPath, Any]]:
    if _stops(tree, is_leaf):
        yield path, tree
        return
    with_keys = SUPPORTED_NODES[_get_node_type(tree)].flatten_with_keys_fn
    if with_keys is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {type(tree)}. Please pass a flatten_with_keys_fn argument to "
            "register_pytree_node."
        )
    for key, child in with_keys(tree)[0]:
        yield from _walk(child, (*path, key), is_leaf)


def tree_leaves_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """(path, leaf) for each leaf; a path is a tuple of SequenceKey, MappingKey and the like."""
    return list(_walk(tree, (), is_leaf))


def tree_flatten_with_path(
    tree: PyTree, is_leaf: IsLeaf = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """(path, leaf) for each leaf, and the shape of `tree`."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """`tree_map` of func(path, leaf, parts of `rests`)."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [[path for path, _ in found], [leaf for _, leaf in found]]
    return spec.unflatten(map(func, *columns, *(spec.flatten_up_to(rest) for rest in rests)))
