"""`__torch_dispatch__`: subclasses of Tensor and modes that are told of every op, below autograd, and answer for it.

What is told, and by which names, is in `library/aten/telling.py`; here is who. Functions ask for a `__torch_function__`
first, and by the same question (`overrides.py`), so that plain tensors pay nothing for either.
"""

from __future__ import annotations

import copyreg
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .modes import telling
from .tensor import Tensor
from .upcalls import Upcall, tell_method


class _Thread(threading.local):
    told: bool = True  # classes and modes are told
    classes: bool = True  # classes are told
    passing: bool = (
        False  # the next question is answered with no: a function that asks is called by who was asked
    )
    running: Any = None  # the op that autograd records around what is told

    def __init__(self) -> None:
        self.modes: list[Any] = []


thread = _Thread()

tell: Upcall[[Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any] = Upcall("library.aten.telling")
"""What the classes and modes that are told of `function(*args, **kwargs)` make of it."""


tell_part: Upcall[[str, Sequence[Any], Mapping[str, Any]], Any] = Upcall("library.aten.telling")
"""The result of the method of that name, as they make of it."""

tell_in_place: Upcall[[Callable[..., Any], str, Sequence[Any], dict[str, Any]], Any] = Upcall(
    "library.aten.telling"
)
"""The same of a method, which is known by a name, that changes its tensor."""

full_like: Upcall[[Tensor, Any], Tensor] = Upcall("library.aten.telling")
"""A tensor like one of which somebody is told, of one value."""

told_members: Upcall[[], Mapping[str, Any]] = Upcall("library.aten.members")
"""What instances of a class that is told have otherwise than other tensors, by name."""


def disabled(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The `__torch_dispatch__` of classes that are not told, such as Tensor."""
    before, thread.classes = thread.classes, False
    try:
        return func(*args, **(kwargs or {}))
    finally:
        thread.classes = before


def is_told_class(kind: type) -> bool:
    """Whether instances of `kind` are told of ops."""
    function = getattr(kind, "__torch_dispatch__", None)
    return function is not None and function is not disabled


def tells(value: Any) -> bool:
    """Whether `value` is to be told of ops in this thread."""
    kind = type(value)
    return kind is not Tensor and thread.classes and thread.told and is_told_class(kind)


def own_attributes(tensor: Tensor) -> dict[str, Any]:
    """What a program has set on a tensor of a class of its own, in slots as well."""
    names = [n for n in copyreg._slotnames(type(tensor)) if n not in Tensor.__slots__]  # type: ignore[attr-defined]
    slots = {name: getattr(tensor, name) for name in names if hasattr(tensor, name)}
    return slots | dict(tensor.__dict__)


def flat(values: Iterable[Any]) -> Iterator[Any]:
    """`values`, and what lies in tuples and lists among them."""
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from flat(value)
        else:
            yield value


def in_mode() -> bool:
    """Whether a mode of this thread is to be told."""
    return bool(thread.modes) and thread.told


def is_told(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether somebody is to be told of a call with these arguments."""
    if thread.passing:
        thread.passing = False
        return False
    if not telling or not thread.told:
        return False
    return bool(thread.modes) or any(map(tells, flat((*args, *kwargs.values()))))


@tell_method.register
def _tell_method(name: str, tensor: Tensor) -> Any:
    return tell_part(name, (tensor,), {}) if is_told((tensor,), {}) else NotImplemented


def passed(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`function`, which asks as the first thing that it does, without being told of this call of it."""
    thread.passing = True
    try:
        return function(*args, **kwargs)
    finally:
        thread.passing = False


class DisableTorchDispatch:
    """A block in which neither classes nor modes are told."""

    def __enter__(self) -> None:
        self._before, thread.told = thread.told, False

    def __exit__(self, *exc: object) -> None:
        thread.told = self._before


@contextmanager
def reentrant() -> Iterator[None]:
    """A block in a `__torch_dispatch__` whose ops are recorded for backward, though what is told of is not."""
    from .modes import mode

    before, mode.enabled = mode.enabled, True
    running, thread.running = thread.running, None
    try:
        yield
    finally:
        mode.enabled, thread.running = before, running


def one_of_each_class(values: Iterable[Any], wanted: Callable[[Any], bool]) -> list[Any]:
    """Those of `values` that are `wanted`, one of each class: in their order, but subclasses first."""
    found: list[Any] = []
    for value in values:
        if wanted(value) and all(type(value) is not type(other) for other in found):
            places = (i for i, other in enumerate(found) if issubclass(type(value), type(other)))
            found.insert(next(places, len(found)), value)
    return found


def answer_of(
    asked: str,
    modes: list[Any],
    found: Sequence[Any],
    function: Any,
    types: tuple[type, ...],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """What the method `asked` of the last mode, or of the first class that answers, makes of a call; else NotImplemented."""
    if modes:
        innermost = modes.pop()  # which passes the call on to the mode around it
        try:
            result = getattr(innermost, asked)(function, types, tuple(args), dict(kwargs))
        finally:
            modes.append(innermost)
        if result is not NotImplemented:
            return result
    for one in found:
        result = getattr(type(one), asked)(function, types, tuple(args), dict(kwargs))
        if result is not NotImplemented:
            return result
    return NotImplemented


def dispatch(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the innermost mode, or the first class that answers, makes of the op `func`."""
    found = one_of_each_class(flat((*args, *kwargs.values())), tells)
    types = tuple(map(type, found))
    modes = thread.modes if in_mode() else []
    result = answer_of("__torch_dispatch__", modes, found, func, types, args, kwargs)
    if result is not NotImplemented:
        return result
    tried = [
        *(f"mode {type(m).__name__}" for m in thread.modes[-1:]),
        *(f"tensor subclass {t}" for t in types),
    ]
    raise TypeError(
        f"Multiple dispatch failed for '{func}'; all __torch_dispatch__ handlers returned NotImplemented:\n\n"
        + "\n".join(f"  - {one}" for one in tried)
    )


_tensor: Any = Tensor
_tensor.__torch_dispatch__ = staticmethod(disabled)
