"""Reads the pickles of data that PyTorch's `weights_only=True` reads: no import, and no call but the listed ones.

The opcodes are those of PyTorch's own reader (https://docs.pytorch.org/docs/stable/notes/serialization.html). A name in the stream stands for what a table
says, and never for what an import would find; only functions of the table and what the user has allowed
(`safe_globals.py`) are called. What a stream may make is limited by its own length.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping
from pickle import UnpicklingError
from typing import Any, NamedTuple

from ..core.errors import CheckpointError, DdpgradError

# A stream of that size may still stand for far more memory, and time, than it takes.
_MOST_OPCODES = 5_000_000
_MOST_CONTAINERS = 1_000_000
_MOST_WORK = 10_000_000  # items that calls go through
_DEEPEST = 10_000  # marks that are open at once
_MOST_ALIKE = 1000  # keys of a dict
_MOST_IN_KEY = 1000  # parts of a tuple that is a key


class RefusedError(CheckpointError, UnpicklingError):
    """A file asks for a class or a function that is not among those that plain data needs: `needs`, where it has a name."""

    needs = ""


class Malformed(CheckpointError):
    """A stream is not what a writer of data makes; the message says why."""


class Language(NamedTuple):
    """What names stand for, what is called, and how objects get their state.

    calls: by `id` of what a name stands for, the function that checks its arguments and makes the value.
    build: gives an object a state, and returns False for one that has none.
    """

    names: Mapping[str, Any]
    calls: Mapping[int, Callable[..., Any]]
    build: Callable[[Any, Any], bool]


class Reader:
    """Interprets one stream at the beginning of `data`.

    language: what plain data needs. allowed: what the user has declared safe, by name. load: gives the storage of a
    persistent id. name: what errors call the file.
    """

    def __init__(
        self,
        data: bytes,
        language: Language,
        allowed: Mapping[str, Any],
        load: Callable[[Any], Any],
        name: str,
    ) -> None:
        self.position = 0
        self._data = data
        self._names, self._calls, self._build_plain = language
        self._allowed = allowed
        self._allowed_ids = {id(value) for value in allowed.values()}
        self._load = load
        self._name = name
        self._memo: dict[int, Any] = {}
        self._stack: list[Any] = []
        self._marked: list[list[Any]] = []
        self._containers = 0
        self._work = min(len(data), _MOST_WORK) + 1000

    def read(self) -> Any:
        """The object; `position` is then behind the stream. CheckpointError if it is no such stream."""
        try:
            for _ in range(_MOST_OPCODES):
                opcode = self._data[self.position]
                self.position += 1
                if opcode == 0x2E:  # STOP
                    return self._stack.pop()
                _OPCODES[opcode](self)
        except Malformed as error:
            raise self._damaged(f"its pickle is malformed: {error}") from None
        except DdpgradError:  # a refusal; or a device that the caller wants is not there
            raise
        except KeyError as error:
            raise self._damaged(f"its pickle has an opcode or a memo that is not known: {error}") from None
        except Exception as error:  # a class that the user allowed may raise anything
            raise self._damaged(f"its pickle is malformed: {type(error).__name__}: {error}") from error
        raise self._damaged(f"it describes more than {_MOST_OPCODES} values: put numbers into tensors")

    def _damaged(self, reason: str) -> CheckpointError:
        return CheckpointError(f"{self._name} is damaged: {reason}")

    def _spend(self, amount: int) -> None:
        """Count work that the stream's length does not bound by itself."""
        self._work -= amount
        if self._work < 0:
            raise Malformed("it makes the same thing again and again")

    def _count(self, amount: int = 1) -> None:
        self._containers += amount
        if self._containers > _MOST_CONTAINERS:
            raise Malformed(f"more than {_MOST_CONTAINERS} lists, dicts and tuples: put numbers into tensors")

    # -- reading the stream --------------------------------------------------------------

    def _take(self, count: int) -> bytes:
        data = self._data[self.position : self.position + count]
        if len(data) != count:
            raise Malformed("it ends too soon")
        self.position += count
        return data

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _line(self) -> str:
        end = self._data.index(b"\n", self.position, self.position + 500)
        return self._take(end + 1 - self.position)[:-1].decode()

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._marked.pop()
        return items

    # -- opcodes -------------------------------------------------------------------------

    def _mark(self) -> None:
        if len(self._marked) >= _DEEPEST:
            raise Malformed("it is nested too deeply")
        self._count()
        self._marked.append(self._stack)
        self._stack = []

    def _put(self, form: str) -> None:
        self._memo[self._number(form)] = self._stack[-1]

    def _long(self, form: str) -> None:
        self._push(int.from_bytes(self._take(self._number(form)), "little", signed=True))

    def _string(self, form: str) -> None:
        self._push(str(self._take(self._number(form)), "utf-8", "surrogatepass"))

    def _old_string(self, form: str) -> None:
        self._push(self._take(self._number(form)).decode("latin1"))

    def _new(self, make: Callable[[], Any], weight: int = 1) -> None:
        self._count(weight)
        self._push(make())

    def _tuple(self, count: int) -> None:
        self._count()
        if len(self._stack) < count:
            raise Malformed("a tuple lacks items")
        self._stack[-count:] = [tuple(self._stack[-count:])]

    def _tuple_of_mark(self) -> None:
        self._count()
        items = tuple(self._pop_mark())
        self._push(items)

    def _extend(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            raise Malformed(f"it appends to a {type(self._stack[-1]).__name__}")
        self._stack[-1].extend(items)

    def _set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) not in (dict, OrderedDict, Counter) or len(items) % 2:
            raise Malformed(f"it sets items of a {type(target).__name__}")
        for i in range(0, len(items), 2):
            check_key(items[i])
            target[items[i]] = items[i + 1]
            if len(target) & (len(target) - 1) == 0:
                check_hashes(target)

    def _global(self) -> None:
        module, name = self._line(), self._line()
        if module == "__builtin__":
            module = "builtins"
        full = f"{module}.{name}"
        if full in self._names:
            self._push(self._names[full])
        elif full in self._allowed:
            self._push(self._allowed[full])
        else:
            short = full.removeprefix("builtins.").removeprefix("__main__.")
            error = RefusedError(
                f"{self._name} needs {full}, which is no plain data, and weights_only=True (the default) runs nothing "
                f"from a file. If you trust where it comes from: allow this with "
                f"torch.serialization.add_safe_globals([{short}]), or load with weights_only=False, which lets the "
                "file run any code"
            )
            error.needs = full
            raise error

    def _reduce(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if type(arguments) is not tuple:
            raise Malformed("a call without arguments")
        call = self._calls.get(id(function))
        if call is not None:
            self._count(2)
            self._spend(sum(len(a) for a in arguments if isinstance(a, (list, tuple, dict))))
            self._spend(sum(len(a) // 16 for a in arguments if isinstance(a, (str, bytes))))
            self._push(call(*arguments))
        elif id(function) in self._allowed_ids:
            self._push(function(*arguments))
        else:
            raise Malformed(f"it calls a {type(function).__name__}")

    def _new_object(self) -> None:
        arguments, kind = self._stack.pop(), self._stack.pop()
        if id(kind) in self._calls:
            self._stack += [kind, arguments]
            self._reduce()
        elif id(kind) in self._allowed_ids and isinstance(kind, type):
            self._push(kind.__new__(kind, *arguments))
        else:
            raise Malformed(f"it makes an object of a {type(kind).__name__}")

    def _build(self) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if self._build_plain(target, state):
            return
        if id(type(target)) not in self._allowed_ids:
            raise Malformed(f"it changes a {type(target).__name__}")
        if hasattr(target, "__setstate__"):
            target.__setstate__(state)
        else:
            inner, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
            if inner:
                vars(target).update(inner)
            for name, value in (slots or {}).items():
                setattr(target, name, value)


def check_key(key: Any) -> None:
    """Refuse a tuple whose hash takes for ever: one that holds a tuple twice, which holds one twice, and so on."""
    waiting, seen = [key], 0
    while waiting:
        one = waiting.pop()
        if isinstance(one, (tuple, frozenset)):
            waiting += one
            seen += len(one)
            if seen > _MOST_IN_KEY:
                raise Malformed(f"a key has more than {_MOST_IN_KEY} parts")


def check_hashes(keys: Collection[Any]) -> None:
    """Refuse keys that were chosen to have the same hash: a dict of many of them takes for ever."""
    if len(keys) > _MOST_ALIKE and len({hash(key) for key in keys}) < len(keys) // 2:
        raise Malformed(f"{len(keys)} keys of a dict or a set have hashes in common")


def attributes(target: Any, state: Any) -> None:
    """Set attributes of plain data: none that the class has itself."""
    if not isinstance(state, dict):
        raise Malformed("attributes that are no dict")
    for name, value in state.items():
        if not isinstance(name, str) or hasattr(type(target), name):
            raise Malformed(f"it sets the attribute {name!r} of a {type(target).__name__}")
        setattr(target, name, value)


_OPCODES: dict[int, Callable[[Reader], Any]] = {
    0x80: lambda r: r._take(1),  # PROTO
    ord("N"): lambda r: r._push(None),
    0x88: lambda r: r._push(True),
    0x89: lambda r: r._push(False),
    ord("K"): lambda r: r._push(r._number("<B")),
    ord("M"): lambda r: r._push(r._number("<H")),
    ord("J"): lambda r: r._push(r._number("<l")),
    ord("G"): lambda r: r._push(r._number(">d")),
    0x8A: lambda r: r._long("<B"),
    0x8B: lambda r: r._long("<L"),
    ord("X"): lambda r: r._string("<L"),
    ord("U"): lambda r: r._old_string("<B"),
    ord("]"): lambda r: r._new(list),
    ord("}"): lambda r: r._new(dict),
    ord(")"): lambda r: r._push(()),
    0x8F: lambda r: r._new(set, 3),
    0x85: lambda r: r._tuple(1),
    0x86: lambda r: r._tuple(2),
    0x87: lambda r: r._tuple(3),
    ord("("): Reader._mark,
    ord("t"): Reader._tuple_of_mark,
    ord("a"): lambda r: r._extend([r._stack.pop()]),
    ord("e"): lambda r: r._extend(r._pop_mark()),
    ord("s"): lambda r: r._set_items([r._stack.pop(-2), r._stack.pop()]),
    ord("u"): lambda r: r._set_items(r._pop_mark()),
    ord("h"): lambda r: r._push(r._memo[r._number("<B")]),
    ord("j"): lambda r: r._push(r._memo[r._number("<L")]),
    ord("q"): lambda r: r._put("<B"),
    ord("r"): lambda r: r._put("<L"),
    ord("Q"): lambda r: r._push(r._load(r._stack.pop())),
    ord("c"): Reader._global,
    ord("R"): Reader._reduce,
    0x81: Reader._new_object,
    ord("b"): Reader._build,
}
