"""Modules that hold modules or parameters: Sequential, lists and dicts."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from typing import Any, NoReturn

from ...core.tensor import Tensor
from ..parameter import Parameter
from .module import Module


def _place(index: int, length: int) -> int:
    """A list index counted from the front; `IndexError` when out of range."""
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range: there are {length}")
    return index % length


class _Indexed(Module):
    """Children under the names "0", "1", …, in order."""

    def _renumber(self, children: Iterable[Module | None]) -> None:
        children = list(children)
        self._modules.clear()
        self._modules.update({str(i): child for i, child in enumerate(children)})

    def _at(self, index: int) -> str:
        return list(self._modules)[_place(index, len(self))]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self.__dict__["_modules"].values()))

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._of(list(self._modules.items())[index])
        return self._modules[self._at(index)]

    def _of(self, items: list[tuple[str, Module | None]]) -> Module:
        raise NotImplementedError

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._at(index), module)

    def __delitem__(self, index: int | slice) -> None:
        for name in list(self._modules)[index] if isinstance(index, slice) else (self._at(index),):
            del self._modules[name]
        self._renumber(self)

    def append(self, module: Module) -> Any:
        """Add `module` at the end; returns self."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add several at the end; returns self."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Put `module` before position `index`; returns self."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}, got {type(module).__name__}")
        children = list(self._modules.values())
        if not -len(children) <= index <= len(children):
            raise IndexError(f"Index out of range: {index}")
        children.insert(index, module)
        self._renumber(children)
        return self

    def pop(self, key: int = -1) -> Any:
        """Take out the child at index `key` and return it."""
        child = self[key]
        del self[key]
        return child


class Sequential(_Indexed):
    """Modules applied one after the other. `Sequential(a, b)` or `Sequential(OrderedDict(name=a, …))`."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else enumerate(args)
        for name, module in named:
            self.add_module(str(name), module)

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input

    def _of(self, items: list[tuple[str, Module | None]]) -> Sequential:
        return type(self)(OrderedDict(items))

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*chain(self, _sequential(other)))

    def __iadd__(self, other: Sequential) -> Sequential:
        return self.extend(_sequential(other))

    def __mul__(self, times: int) -> Sequential:
        return Sequential(*chain.from_iterable([self] * _count(times)))

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Sequential:
        own = list(self)
        for _ in range(_count(times) - 1):
            self.extend(own)
        return self


def _sequential(other: Any) -> Sequential:
    if not isinstance(other, Sequential):
        raise ValueError(
            f"add operator supports only objects of Sequential class, but {type(other)} is given."
        )
    return other


def _count(times: Any) -> int:
    if not isinstance(times, int):
        raise TypeError(f"unsupported operand type(s) for *: {type(Sequential)} and {type(times)}")
    if times <= 0:
        raise ValueError(f"Non-positive multiplication factor {times} for {type(Sequential)}")
    return times


class ModuleList(_Indexed):
    """A list of modules, registered. It has no forward of its own."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def insert(self, index: int, module: Module) -> None:
        """Put `module` before position `index`, as a list does."""
        super().insert(index, module)

    def _of(self, items: list[tuple[str, Module | None]]) -> ModuleList:
        return type(self)(child for _, child in items if child is not None)

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def __repr__(self) -> str:
        """Neighbours that print alike are told once: `(0-2): 3 x Linear(...)`."""
        lines, start = [], 0
        for text, group in groupby(repr(child) for child in self):
            count = len(list(group))
            name = f"({start}): " if count == 1 else f"({start}-{start + count - 1}): {count} x "
            lines.append((name + text).replace("\n", "\n  "))
            start += count
        inner = "\n  ".join(lines)
        return f"{self._get_name()}(\n  {inner}\n)" if lines else f"{self._get_name()}()"


class ModuleDict(Module):
    """A dict of modules, registered, in order of insertion. It has no forward of its own."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take out all."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Take out one and return it."""
        return self._modules.pop(key)

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def items(self) -> Any:
        """(name, module) pairs."""
        return self._modules.items()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace by name."""
        for key, module in dict(modules).items():
            self[key] = module


def _registered(value: Any) -> Any:
    """Tensors become parameters; anything else is kept as it is."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


class ParameterList(Module):
    """A list whose tensors are registered as parameters "0", "1", …; other values may be in it too."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return ParameterList([self[i] for i in range(*index.indices(self._size))])
        return getattr(self, str(_place(index, self._size)))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(_place(index, self._size)), _registered(value))

    def __iter__(self) -> Iterator[Any]:
        return iter(self[i] for i in range(self._size))

    def append(self, value: Any) -> ParameterList:
        """Add at the end; returns self."""
        setattr(self, str(self._size), _registered(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add several at the end; returns self."""
        if isinstance(values, Tensor):
            raise TypeError(
                f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}"
            )
        for value in list(values):
            self.append(value)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("ParameterList should not be called.")

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {_described(value)}" for i, value in enumerate(self))


class ParameterDict(Module):
    """A dict whose tensors are registered as parameters; other values may be in it too."""

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        self._names: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._names:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self._names and hasattr(self, key):
            raise KeyError(f"'{key}' is an attribute of ParameterDict and cannot be a name in it")
        setattr(self, key, _registered(value))
        self._names[key] = None

    def __delitem__(self, key: str) -> None:
        del self._names[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, key: object) -> bool:
        return key in self._names

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default`."""
        return getattr(self, key) if key in self._names else default

    def pop(self, key: str) -> Any:
        """Take out one and return it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take out the last pair and return it."""
        key = next(reversed(self._names))
        return key, self.pop(key)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of `key`, which is `default` from now on if there is none."""
        if key not in self._names:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Take out all."""
        for key in list(self._names):
            del self[key]

    def copy(self) -> ParameterDict:
        """Another dict with the same values."""
        return ParameterDict(self.items())

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dict with the same value for all `keys`."""
        return ParameterDict((key, default) for key in keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._names)

    def __or__(self, other: ParameterDict) -> ParameterDict:
        return ParameterDict([*self.items(), *other.items()])

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        return ParameterDict([*other.items(), *self.items()])

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other.items())
        return self

    def keys(self) -> Any:
        """The names."""
        return self._names.keys()

    def values(self) -> list[Any]:
        """The values, in order of insertion."""
        return [self[key] for key in self]

    def items(self) -> list[tuple[str, Any]]:
        """(name, value) pairs, in order of insertion."""
        return [(key, self[key]) for key in self]

    def update(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add or replace by name: from an ordinary mapping in the order of the names, else in the order given.

        The order is that of `parameters()`, so that the state of optimizers fits PyTorch's.
        """
        pairs = dict(parameters).items()
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            pairs = sorted(pairs)
        for key, value in pairs:
            self[key] = value

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("ParameterDict should not be called.")

    def extra_repr(self) -> str:
        return "\n".join(f"  ({key}): {_described(value, 'type')}" for key, value in self.items())


def _described(value: Any, elements: str = "dtype") -> str:
    """One line about an entry; elements: whether a tensor tells its dtype, or its type by PyTorch's older name."""
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    where = f" ({value.device})" if value.is_cuda else ""
    kind = value.type() if elements == "type" else repr(value.dtype)
    return f"{type(value).__name__} containing: [{kind} of size {'x'.join(map(str, value.shape))}{where}]"
