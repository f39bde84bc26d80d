"""Which classes and functions of the user's a file may name: `torch.serialization.add_safe_globals` and its like."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

from .. import nn

_BLOCKED = ("sys", "os", "posix", "nt")  # PyTorch's list: nothing of these is ever allowed
_allowed: list[Any] = []
_OWN: list[Any] = []  # of this package
_LAYERS = (nn.Module, nn.UninitializedParameter, nn.UninitializedBuffer)
_PACKAGE = __name__.partition(".")[0]
# PyTorch's classes of layers that are no others here.
_SAME_HERE = {"NonDynamicallyQuantizableLinear": "Linear"}


def module_of(obj: Any) -> str:
    """The name of the module of a class or function: of this package's its own, which programs know by others too."""
    name = getattr(obj, "__module__", None) or ""
    own = getattr(sys.modules.get(name), "__name__", name)
    return own if own.startswith(f"{_PACKAGE}.") else name


_places: dict[Any, str] = {}


def declare_places(places: Mapping[type, str]) -> None:
    """Let files have these classes by the names of PyTorch's modules."""
    _places.update(places)


def layer_place(obj: Any) -> str | None:
    """Where PyTorch too has a layer, a function of layers, or a class that is declared, of this package; None for all else."""
    if isinstance(obj, type) and obj in _places:
        return _places[obj]
    name = getattr(obj, "__qualname__", "")
    if module_of(obj).startswith(f"{nn.__name__}."):
        for place, face in (("torch.nn", nn), ("torch.nn.functional", nn.functional)):
            if getattr(face, name, None) is obj:
                return place
    return None


def layer_of(module: str, name: str) -> Any:
    """The layer, or the function of layers, that PyTorch has in its module of that name; None where there is none here."""
    if not module.startswith("torch.nn"):
        return None
    name = _SAME_HERE.get(name, name)
    for face in (nn, nn.functional):
        found = getattr(face, name, None)
        if isinstance(found, FunctionType) or (isinstance(found, type) and issubclass(found, _LAYERS)):
            return found
    return None


class _Allowed(dict[str, Any]):
    """What is declared safe by the names that files have for it; a layer by any name that PyTorch has for it."""

    def __missing__(self, name: str) -> Any:
        place, _, last = name.rpartition(".")
        layer = layer_of(place, last)
        if layer is None or all(layer is not value for value in self.values()):
            raise KeyError(name)
        return layer

    def __contains__(self, name: object) -> bool:
        try:
            self[str(name)]
        except KeyError:
            return False
        return True


def declare_safe(*own: Any) -> None:
    """Let files name classes and functions of this package."""
    _OWN.extend(own)


def add_safe_globals(safe_globals: Sequence[Any]) -> None:
    """Let `load` make objects of these classes, and call these functions, with weights_only=True.

    safe_globals: classes and functions, or (class or function, the name by which files call it).
    """
    _allowed.extend(one for one in safe_globals if one not in _allowed)


def get_safe_globals() -> list[Any]:
    """What the user has declared safe."""
    return list(_allowed)


def clear_safe_globals() -> None:
    """Declare nothing safe but plain data."""
    _allowed.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: Sequence[Any]) -> Iterator[None]:
    """A block in which these are declared safe too: see `add_safe_globals`."""
    before = list(_allowed)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _allowed[:] = before


def by_name() -> dict[str, Any]:
    """What the user or this package has declared safe, by the name that files have for it."""
    declared = (*_OWN, *_allowed)
    named = [
        one if isinstance(one, tuple) else (one, f"{module_of(one)}.{one.__qualname__}") for one in declared
    ]
    return _Allowed({name: one for one, name in named if name.rpartition(".")[0] not in _BLOCKED})
