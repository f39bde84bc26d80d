"""What the Python of a recorded step read besides its inputs: attributes and members of modules, closures, globals.

Replays do not run it, so they compare what it would read with what it was.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..nn.modules import hooks as all_modules
from ..nn.modules import registration
from ..nn.modules.module import Module

SIMPLE = (bool, int, float, complex, str, type(None))
_PACKAGE = str(Path(__file__).parents[1]) + "/"
_MOST_PARTS = 64  # of a list or dict whose parts are looked at
_MOST_BYTES = 4096  # of an array of NumPy's that is compared
_MOST_READ = 1000  # objects
_VALUES = (*SIMPLE, bytes, frozenset)
_GONE = object()
_LENGTH = "len({})"
_OF_TREES = frozenset(("_parameters", "_buffers", "_modules", "_hooks", "_non_persistent_buffers_set"))


class Place(NamedTuple):
    """Where a value was read. text: an expression for it, of the holder `{}`; said: what it is called."""

    holder: Any
    text: str
    value: Any
    said: str


def alike(a: Any, b: Any) -> bool:
    """Whether two objects mean the same to a step: numbers, flags and texts by what they are, others by identity."""
    return a is b or (type(a) is type(b) and isinstance(a, _VALUES) and (a == b or (a != a and b != b)))


def drawn() -> Any:
    """The states of Python's and NumPy's own generators of random numbers, as far as they are loaded."""
    random, numbers = sys.modules.get("random"), sys.modules.get("numpy.random")
    return random and random.getstate(), numbers and pickle.dumps(numbers.get_state(legacy=False))


def places(function: Any, modules: Iterable[Module]) -> list[Place]:
    """Where a step of `function`, which called `modules`, has read, as far as its code and theirs say."""
    reading = _Reading()
    reading.value(function, "the step", frozenset())
    for module in modules:
        reading.module(module)
    return list({(id(place.holder), place.text): place for place in reading.places}.values())


class _Reading:
    """Finds places, from functions and modules on."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self._seen: set[Any] = set()

    def function(self, function: FunctionType) -> frozenset[str]:
        """Read what a function of the program closes over, and the globals that it names. Returns all names in its code."""
        code = function.__code__
        names = frozenset(_names(code))
        if code.co_filename.startswith(_PACKAGE) or not self._first(id(function)):
            return names
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.value(value, f"a default of {function.__name__}", names)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._at(cell, "content({})", content(cell), name, names)
        known = function.__globals__
        for name in sorted(names & known.keys()):
            self._at(known, f"{{}}.get({name!r})", known[name], name, names)
        return names

    def module(self, module: Module) -> None:
        """Read the attributes of a module that are not parameters or children, and what its forward reads."""
        own, kind = vars(module), type(module)
        names = self._methods(kind, frozenset(("forward",)))
        for name, value in ({"forward": None} | own).items():
            if not (name in own["_parameters"] or name in own["_modules"] or name in _OF_TREES):
                self._at(own, f"{{}}.get({name!r})", value, f"{name} of a {kind.__name__}", names)

    def value(self, value: Any, said: str, names: frozenset[str], depth: int = 4) -> None:
        """Read what a function with these names in its code may read of `value`."""
        kind = type(value)
        if kind is FunctionType:
            self.function(value)
        elif kind is MethodType:
            method: Any = value.__func__
            reached = self.function(method) if isinstance(method, FunctionType) else names
            self.value(value.__self__, said, reached, depth)
        elif kind is partial:
            for part in (value.func, value.args, value.keywords):
                self.value(part, said, names, depth)
        elif not depth or isinstance(value, (*SIMPLE, Module)) or not self._first((id(value), names)):
            return
        elif kind in (set, frozenset):
            self.places.append(Place(value, "frozenset({})", frozenset(value), said))
        elif kind is np.ndarray and value.nbytes <= _MOST_BYTES and not value.dtype.hasobject:
            self.places.append(Place(value, "{}.tobytes()", value.tobytes(), said))
        elif kind is tuple:  # which cannot change
            for one in value[:_MOST_PARTS]:
                self.value(one, said, names, depth - 1)
        elif kind is list or kind is dict:
            self.places.append(Place(value, _LENGTH, len(value), said))
            parts = value.items() if kind is dict else enumerate(value)
            for key, one in parts if len(value) <= _MOST_PARTS else ():
                if isinstance(key, (int, str)):
                    text = f"{{}}.get({key!r})" if kind is dict else f"part({{}}, {key})"
                    self._at(value, text, one, f"{said}[{key!r}]", names, depth - 1)
        elif isinstance(value, type):
            self._of_class(value, said, names)
        elif type(own := getattr(value, "__dict__", None)) is dict and not _is_ours(kind):
            if isinstance(value, ModuleType):  # functions are not replaced there, and there are many
                own_names = [name for name in names if isinstance(own.get(name), SIMPLE) and name in own]
            else:
                names |= self._methods(kind, names)
                own_names = (names & own.keys()) | self._of_class(kind, said, names)
            for name in sorted(own_names):
                self._at(own, f"{{}}.get({name!r})", own.get(name), f"{said}.{name}", names, depth - 1)

    def _of_class(self, kind: type, said: str, names: frozenset[str]) -> set[str]:
        """Read the attributes of a class of the program that are no methods. Returns their names."""
        read = set()
        for base in () if _is_ours(kind) else kind.__mro__[:-1]:
            for name in sorted(names & vars(base).keys()):
                if isinstance(vars(base)[name], (*SIMPLE, list, dict)):
                    self._at(base, f"vars({{}}).get({name!r})", vars(base)[name], f"{said}.{name}", names, 1)
                    read.add(name)
        return read

    def _methods(self, kind: type, names: frozenset[str]) -> frozenset[str]:
        """Read the methods of a class with these names, and those that they name. Returns all names in their code."""
        reached, asked = names, set(names)
        while asked:
            method = getattr(kind, asked.pop(), None)
            if isinstance(method, FunctionType) and not method.__code__.co_filename.startswith(_PACKAGE):
                found = self.function(method)
                asked |= found - reached
                reached |= found
        return reached

    def _first(self, key: Any) -> bool:
        """Whether this is read for the first time, and little enough has been read."""
        if key in self._seen or len(self._seen) >= _MOST_READ:
            return False
        self._seen.add(key)
        return True

    def _at(
        self, holder: Any, text: str, value: Any, said: str, names: frozenset[str], depth: int = 4
    ) -> None:
        self.places.append(Place(holder, text, value, said))
        self.value(value, said, names, depth)


def _is_ours(kind: type) -> bool:
    """Whether a class is, or derives from, one of this package's, such as an optimizer, whose numbers replays look up."""
    return any(base.__module__.partition(".")[0] in ("ddpgrad", "torch") for base in kind.__mro__)


def content(cell: Any) -> Any:
    """What a function closes over."""
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return None


def part(values: list[Any], i: int) -> Any:
    """An element of a list, which may be shorter than it was."""
    return values[i] if i < len(values) else _GONE


def _names(code: CodeType) -> Iterator[str]:
    """The globals and attributes that code names, and functions that it defines."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names(part)


def steady(before: Iterable[Place], now: Iterable[Place]) -> list[Place]:
    """Of the places `now`, those that one step has left alone: what the step itself sets is no news."""
    values = {(id(p.holder), p.text): p.value for p in before}
    moved = [p for p in now if not alike(values.get((id(p.holder), p.text), p.value), p.value)]
    left_out = {(id(p.holder), p.text) for p in moved}
    grown = {id(p.holder) for p in moved if p.text == _LENGTH}
    return [p for p in now if (id(p.holder), p.text) not in left_out and id(p.holder) not in grown]


class Guard:
    """Puts together a function that says what has changed, or None."""

    def __init__(self) -> None:
        self._scope: dict[str, Any] = {"alike": alike, "content": content, "part": part}
        self._lines: list[str] = []
        self._named: dict[int, str] = {}

    def name(self, value: Any) -> str:
        """The name of an object in what is put together."""
        name = self._named.get(id(value))
        if name is None:
            name = self._named[id(value)] = f"o{len(self._named)}"
            self._scope[name] = value  # and so alive, which keeps its identity
        return name

    def check(self, condition: str, said: str) -> None:
        """Say `said` where `condition` does not hold."""
        self._lines.append(f"    if not ({condition}): return {said!r}")

    def places(self, places: Iterable[Place]) -> None:
        """Look at places that a step has read."""
        for place in places:
            text, value = place.text.format(self.name(place.holder)), self.name(place.value)
            simple = f" or alike({text}, {value})" * isinstance(place.value, _VALUES)
            self.check(f"{text} is {value}{simple}", f"{place.said} has changed")

    def modules(self, modules: Iterable[Module]) -> None:
        """Look at the hooks and members of modules, at those only when any module has got one."""
        modules = list(modules)
        self._scope |= {
            "hooked": hooked,
            "of_all": all_modules.of_all,
            "hooks_of_all": all_modules.of_all_modules.get,
        }
        of_all = self.name(hooked(all_modules.of_all_modules.get()))
        self.check(
            f"not of_all.raised or hooked(hooks_of_all()) == {of_all}", "hooks of all modules have changed"
        )
        for module in modules:
            own, hooks = self.name(vars(module)), module._hooks
            seen = f"{own}.get('_hooks') is None"
            if hooks is not None:
                seen = f"hooked({own}['_hooks']) == {self.name(hooked(hooks))}"
            self.check(seen, f"hooks of a {type(module).__name__} have changed")
        before, count = _members(modules), list(registration.changes)

        def moved() -> bool:
            if _members(modules) != before:
                return True
            count[:] = registration.changes
            return False

        count_name, changes = self.name(count), self.name(registration.changes)
        self.check(
            f"{changes} == {count_name} or not {self.name(moved)}()",
            "a parameter or child of a module has changed",
        )

    def made(self) -> Callable[[], str | None]:
        """The function."""
        exec("\n".join(["def changed():", *self._lines, "    return None"]), self._scope)
        return self._scope["changed"]


def _members(modules: Iterable[Module]) -> list[tuple[str, int]]:
    owns = [vars(module) for module in modules]
    return [
        (name, id(own[name])) for own in owns for kind in ("_parameters", "_modules") for name in own[kind]
    ]


def hooked(hooks: Any) -> tuple[int, ...]:
    """The numbers of hooks."""
    if hooks is None:
        return ()
    return *hooks.pre, *hooks.post, *hooks.backward_pre, *hooks.backward, *hooks.on_node
