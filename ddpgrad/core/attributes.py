"""What a program sets on a tensor, apart from what autograd keeps there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any


class Attributes(MutableMapping[str, Any]):
    """`vars(tensor)`: the program's own attributes. What it writes is set on the tensor."""

    __slots__ = ("_all", "_known")

    def __init__(self, everything: dict[str, Any], known: type) -> None:
        """everything: all that lies on the tensor. known: the class Tensor, whose own names are not the program's."""
        self._all, self._known = everything, known

    def __getitem__(self, name: str) -> Any:
        return self._all[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._all[name] = value

    def __delitem__(self, name: str) -> None:
        del self._all[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._all if not hasattr(self._known, name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))

    def become(self, attributes: Mapping[str, Any]) -> None:
        """Have these attributes, and no others."""
        kept = dict(attributes)  # which may be this object
        self.clear()
        self.update(kept)

    def copy(self) -> dict[str, Any]:
        """The program's attributes as a dict of its own."""
        return dict(self)
