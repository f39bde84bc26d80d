"""Key paths of `torch.utils._pytree`: the steps from the root of a tree to a leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KeyPath = tuple[Any, ...]


@dataclass(frozen=True)
class SequenceKey:
    """A step of a path: the place in a sequence."""

    idx: int

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclass(frozen=True)
class MappingKey:
    """A step of a path: the key in a mapping."""

    key: Any

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclass(frozen=True)
class GetAttrKey:
    """A step of a path: the name of an attribute."""

    name: str

    def get(self, obj: Any) -> Any:
        return getattr(obj, self.name)

    def __str__(self) -> str:
        return f".{self.name}"


def key_get(obj: Any, path: KeyPath) -> Any:
    """What stands in `obj` at the end of `path`."""
    for key in path:
        obj = key.get(obj)
    return obj


def keystr(path: KeyPath) -> str:
    """`path` as one would write it in Python."""
    return "".join(map(str, path))
