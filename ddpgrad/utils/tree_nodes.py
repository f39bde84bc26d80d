"""The containers that `_pytree` goes into: how those of each registered type are taken apart and put together."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..core.size import Size
from ..nn.modules.registration import Members
from .tree_path import GetAttrKey, MappingKey, SequenceKey

Context = Any


class NodeDef(NamedTuple):
    """How containers of one type are taken apart and put together."""

    type: type
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Context]]
    unflatten_fn: Callable[[Iterable[Any], Context], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Context]] | None


SUPPORTED_NODES: dict[Any, NodeDef] = {}
"""The registered types."""


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Context]],
    unflatten_fn: Callable[[Iterable[Any], Context], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Context], Any] | None = None,
    from_dumpable_context: Callable[[Any], Context] | None = None,
    flatten_with_keys_fn: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Context]] | None = None,
) -> None:
    """Make instances of `cls` containers: flatten_fn(instance) -> (children, context), unflatten_fn(children, context).

    The names for serializing are accepted: specs are not written to files. ValueError for a type registered before.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


def register_dataclass(cls: type, **names: Any) -> None:
    """Make instances of a dataclass containers of their fields."""
    fields = [field.name for field in dataclasses.fields(cls) if field.init]

    def with_keys(obj: Any) -> tuple[list[tuple[Any, Any]], Context]:
        return [(GetAttrKey(name), getattr(obj, name)) for name in fields], None

    register_pytree_node(
        cls,
        lambda obj: ([getattr(obj, name) for name in fields], None),
        lambda children, _: cls(**dict(zip(fields, children, strict=True))),
        flatten_with_keys_fn=with_keys,
    )


def register_constant(cls: type) -> None:
    """Make instances of `cls` containers of nothing: parts of the shape of a tree, which are compared and hashed."""
    if cls.__eq__ is object.__eq__ or cls.__hash__ is None:
        raise TypeError(f"register_constant(cls) expects `cls` to have __eq__ and __hash__, got {cls}")
    register_pytree_node(
        cls, lambda obj: ([], obj), lambda _, obj: obj, flatten_with_keys_fn=lambda obj: ([], obj)
    )


def _enumerated(children: Iterable[Any]) -> list[tuple[Any, Any]]:
    return [(SequenceKey(i), child) for i, child in enumerate(children)]


def _by_key(mapping: Any) -> list[tuple[Any, Any]]:
    return [(MappingKey(key), child) for key, child in mapping.items()]


def _named(values: Any) -> list[tuple[Any, Any]]:
    if is_structseq(values):
        return _enumerated(values)
    return [(GetAttrKey(name), value) for name, value in zip(values._fields, values, strict=True)]


def _keys(mapping: Any) -> list[Any]:
    return list(mapping.keys())


def _list_flatten(s: Any) -> tuple[list[Any], Context]:
    return list(s), None


def _list_flatten_with_keys(s: Any) -> tuple[list[tuple[Any, Any]], Context]:
    return _enumerated(s), None


def _list_unflatten(children: Iterable[Any], context: Context) -> list[Any]:
    return list(children)


def _dict_flatten(mapping: Any) -> tuple[list[Any], Context]:
    return list(mapping.values()), _keys(mapping)


def _dict_flatten_with_keys(mapping: Any) -> tuple[list[tuple[Any, Any]], Context]:
    return _by_key(mapping), _keys(mapping)


def _dict_unflatten(children: Iterable[Any], keys: Context) -> dict[Any, Any]:
    return dict(zip(keys, children, strict=True))


def _register_known() -> None:
    def sequence(cls: type, context: Callable[[Any], Context], make: Callable[[Any, Context], Any]) -> None:
        register_pytree_node(
            cls,
            lambda s: (list(s), context(s)),
            make,
            flatten_with_keys_fn=lambda s: (_enumerated(s), context(s)),
        )

    def mapping(cls: type, context: Callable[[Any], Context], make: Callable[[Any, Context], Any]) -> None:
        register_pytree_node(
            cls,
            lambda m: (list(m.values()), context(m)),
            make,
            flatten_with_keys_fn=lambda m: (_by_key(m), context(m)),
        )

    sequence(tuple, lambda s: None, lambda children, _: tuple(children))
    register_pytree_node(list, _list_flatten, _list_unflatten, flatten_with_keys_fn=_list_flatten_with_keys)
    for kind in (dict, Members):  # what is made in place of a module's members is a plain dict
        register_pytree_node(
            kind, _dict_flatten, _dict_unflatten, flatten_with_keys_fn=_dict_flatten_with_keys
        )
    sequence(deque, lambda s: s.maxlen, lambda children, length: deque(children, maxlen=length))
    sequence(Size, lambda s: None, lambda children, _: tuple(children))
    register_pytree_node(
        _NamedTuple,
        lambda s: (list(s), type(s)),
        lambda children, cls: cls(*children),
        flatten_with_keys_fn=lambda s: (_named(s), type(s)),
    )
    mapping(OrderedDict, _keys, lambda children, keys: OrderedDict(zip(keys, children, strict=True)))
    mapping(
        defaultdict,
        lambda m: (m.default_factory, _keys(m)),
        lambda children, context: defaultdict(context[0], zip(context[1], children, strict=True)),
    )


class _NamedTuple:
    """What stands in the table for the types that `collections.namedtuple` makes."""


_register_known()


def is_namedtuple_class(cls: type) -> bool:
    """True for a class that `collections.namedtuple` or `typing.NamedTuple` made."""
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def is_namedtuple(obj: object) -> bool:
    """True for a namedtuple, or its class."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_instance(obj: object) -> bool:
    """True for a namedtuple."""
    return is_namedtuple_class(type(obj))


def is_structseq_instance(obj: object) -> bool:
    """True for a named result such as that of `max(dim)`, in PyTorch of a type written in C."""
    return is_namedtuple(obj) and type(obj).__module__.endswith("return_types")


is_structseq = is_structseq_instance
