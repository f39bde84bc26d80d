"""`__torch_function__`: objects that have a say in what a function does with them are asked in its place.

They are instances of subclasses of Tensor, objects of other classes that define it, and the modes a thread is in
(`compat/overrides.py`). Plain tensors pay nothing for it. An op takes the array out of an operand by the name `_operand`,
which is the slot `_array` under another name; the operands of a class that is to be asked have none, and an op that
meets one comes here. Attributes and methods of such a class stand in `Asking`, which takes Tensor's place among its
bases. What else has to ask first looks whether `overriding` is empty.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import FunctionType, MemberDescriptorType, NoneType
from typing import Any, Self, TypeVar

import numpy as np

from . import dispatching
from .dispatching import answer_of, is_told, is_told_class, one_of_each_class, tell, telling, told_members
from .errors import not_of, out_of_memory
from .modes import function_modes
from .tensor import Tensor

C = TypeVar("C", bound=Callable[..., Any])

overriding: list[Any] = []
"""The class `Asking` once there is a subclass of Tensor that is asked, and the modes that any thread is in."""


class _Thread(threading.local):
    subclasses: bool = True  # are asked
    modes: bool = True


_thread = _Thread()


class DisableTorchFunctionSubclass(AbstractContextManager[Any]):
    """A block in which no argument is asked, whatever its class."""

    _modes_too = False

    def __enter__(self) -> Self:
        self._before = _thread.subclasses, _thread.modes
        _thread.subclasses = False
        if self._modes_too:
            _thread.modes = False
        return self

    def __exit__(self, *exc: object) -> None:
        _thread.subclasses, _thread.modes = self._before


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """A block in which neither arguments nor modes are asked."""

    _modes_too = True


def disabled(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The `__torch_function__` of classes that are not asked, such as Parameter."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def asks(value: Any) -> bool:
    """Whether the class of `value` is to be asked in this thread."""
    kind = type(value)
    if kind is Tensor or not _thread.subclasses:
        return False
    function = getattr(kind, "__torch_function__", None)
    return function is not None and function is not disabled


def in_mode() -> bool:
    """Whether this thread is in a mode that is to be asked."""
    return bool(function_modes.entered) and _thread.modes


def overloaded(values: Iterable[Any]) -> list[Any]:
    """Those of `values` that are to be asked, one of each class: in their order, but subclasses first."""
    return one_of_each_class(values, asks)


def arguments_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """The arguments of a call, and what lies in tuples and lists among them."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, (tuple, list)):
            yield from value
        else:
            yield value


def _is_asked(args: Sequence[Any]) -> bool:
    """Whether a `__torch_function__` has a say in a call with these arguments."""
    return in_mode() or any(map(asks, args))


def is_overridden(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call with these arguments is to be answered by one of them, or by a mode."""
    return (
        in_mode() or any(map(asks, arguments_of(args, kwargs))) or (bool(telling) and is_told(args, kwargs))
    )


def ask(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    asked: Sequence[Any] | None = None,
    error: Exception | None = None,
) -> Any:
    """What the mode or the first class that answers makes of `function(*args, **kwargs)`.

    asked: the arguments that are asked, where not all are. error: raised if nobody answers.
    """
    found = overloaded(arguments_of(args, kwargs)) if asked is None else asked
    types = tuple(map(type, found))
    if telling and not found and not in_mode() and is_told(args, kwargs):
        return tell(function, args, kwargs)
    modes = function_modes.entered if in_mode() else []
    result = answer_of("__torch_function__", modes, found, function, types, args, kwargs)
    if result is not NotImplemented:
        return result
    name = getattr(function, "__name__", function)
    names = ", ".join(kind.__name__ for kind in types)
    raise error or TypeError(
        f"Multiple dispatch failed for '{name}'; all __torch_function__ handlers returned NotImplemented: {names}"
    )


def answer(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> Any:
    """`ask` after a call with these arguments has failed; raises `error` if there is nobody to ask."""
    found = overloaded(arguments_of(args, kwargs))
    try:
        if not found and not in_mode():
            raise error
        return ask(function, args, kwargs, found, error)
    finally:
        # Else it and this frame would keep one another, and all that the frames of its traceback have.
        del error


def leaving_unknown(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call(function, args, …)` for an operator's method.

    Where it fails, and one operand is neither a Tensor nor a number, the result is NotImplemented: Python then calls the
    method of that operand.
    """

    def leaving(function: Any, args: Sequence[Any], *others: Any) -> Any:
        try:
            return call(function, args, *others)
        except (TypeError, NotImplementedError):
            if all(isinstance(operand, OPERANDS) for operand in args):
                raise
            return NotImplemented

    return leaving


OPERANDS = (Tensor, bool, int, float, complex, np.generic, np.ndarray)


def overridable(function: C) -> C:
    """`function`, which asks its arguments first.

    Where there is no subclass of Tensor that is asked, only an object of another class may be: it is looked for if it
    comes first, and else when the call has failed.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (overriding or (args and args[0].__class__ is not Tensor)) and is_overridden(args, kwargs):
            return ask(shown(call), args, kwargs)
        try:
            return function(*args, **kwargs)
        except (AttributeError, TypeError, RuntimeError, ValueError) as error:
            if overriding or not is_overridden(args, kwargs):
                if isinstance(error, AttributeError) and (said := not_of(Tensor, function, args, kwargs)):
                    raise said from error
                raise
            return ask(shown(call), args, kwargs, None, error)

    call.__dict__.update(asks=True, inside=function)
    return call  # type: ignore[return-value]


# Of the arguments of factories.
_USUAL = frozenset({int, float, bool, complex, tuple, list, Tensor, NoneType})


def asking_modes(function: C) -> C:
    """`function`, which makes tensors of what are none, and so asks modes; of its arguments, those of unusual classes.

    What lies in tuples, and keywords, are asked when the call has failed.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if overriding and is_overridden((), {}):
            return ask(call, args, kwargs)
        for value in args:
            if value.__class__ not in _USUAL and not isinstance(value, Tensor) and asks(value):
                return ask(call, args, kwargs)
        try:
            return function(*args, **kwargs)
        except MemoryError as error:
            raise out_of_memory(function.__name__, error) from error
        except (AttributeError, TypeError, RuntimeError, ValueError) as error:
            if not is_overridden(args, kwargs):
                raise
            return ask(call, args, kwargs, None, error)

    call.__dict__.update(asks=True, inside=function)
    return call  # type: ignore[return-value]


def shown(function: Callable[..., Any]) -> Callable[..., Any]:
    """What users know `function` as, where it is wrapped again: what they are asked about."""
    return function.__dict__.get("shown", function)


# -- subclasses of Tensor ----------------------------------------------------------------------


def _torch_function(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The result of `func` with its tensors in this class; NotImplemented where another class knows more of it."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
        return result if func in nowrap() else _as_class(result, cls)


@functools.cache
def nowrap() -> set[Any]:
    """The functions whose results the usual `__torch_function__` leaves in their class."""
    return {Tensor.__dict__[name].__get__ for name in ("_base", "grad")}


def _as_class(result: Any, cls: Any) -> Any:
    if isinstance(result, Tensor):
        return result if cls is Tensor or isinstance(result, cls) else result.as_subclass(cls)
    if isinstance(result, (tuple, list)):
        parts = [_as_class(part, cls) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


class Overridden(Exception):
    """An op has met an operand that is to be asked. No AttributeError, which a `__getattr__` of the class would answer."""


def _array_if_not_asked(self: Tensor) -> Any:
    if in_mode() or asks(self) or (telling and is_told((self,), {})):
        raise Overridden
    return self._array


_OPERAND: Any = Tensor.__dict__["_array"]
ASKED_FIRST = property(_array_if_not_asked)
"""The attribute `_operand` of a class that is asked."""

_NOT_ASKED = frozenset({"__dict__", "__hash__", "__iter__", "as_subclass", "new"})


def asked_members() -> dict[str, Any]:
    """The methods and properties of Tensor that `Asking` asks about, by name.

    Reflected operators are not among them: Python would prefer those of a subclass to the operator of a plain tensor on
    the left, whose op asks.
    """
    return {
        name: member
        for name, member in Tensor.__dict__.items()
        if name not in _NOT_ASKED
        and (name[0] != "_" or name[:2] == "__")
        and not (name[:3] == "__r" and f"__{name[3:]}" in Tensor.__dict__)
        and hasattr(member, "__get__")
        and not isinstance(member, (staticmethod, classmethod, MemberDescriptorType))
    }


def asking_members() -> dict[str, Any]:
    """What Tensor has, asked about first, by name."""
    return {
        name: _property(member) if isinstance(member, property) else _method(name, member)
        for name, member in asked_members().items()
    }


@functools.cache
def _asking() -> Any:
    """The class `Asking`: what Tensor has, asked about first."""
    members: dict[str, Any] = {"__slots__": (), "_operand": ASKED_FIRST, "__hash__": object.__hash__}
    members.update(asking_members())
    made = type("Asking", (Tensor,), members)
    overriding.append(made)
    return made


@functools.cache
def _told() -> Any:
    """The class `Told`: the base of what has a `__torch_dispatch__`."""
    made = type("Told", (_asking(),), {"__slots__": (), **told_members()})
    telling.append(made)
    return made


_BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift",
)  # fmt: skip
_OPERATORS = {f"__{n}__" for n in (*_BINARY, *[f"i{n}" for n in _BINARY], "lt", "le", "gt", "ge", "eq", "ne")}


def _method(name: str, member: Any) -> Any:
    asking = leaving_unknown(ask) if name in _OPERATORS else ask

    def method(*args: Any, **kwargs: Any) -> Any:
        function = getattr(Tensor, name)  # which may be loaded by this
        if name[:2] == "__":  # an operator is asked about by the name of the method
            function = getattr(Tensor, function.__name__, function)
        return asking(function, args, kwargs) if is_overridden(args, kwargs) else function(*args, **kwargs)

    return functools.wraps(member)(method) if isinstance(member, FunctionType) else method


def _property(known: property) -> property:
    def asked(access: Any) -> Any:
        return lambda *args: ask(access, args, {}) if _is_asked(args) else access(*args)

    return property(
        asked(known.__get__),
        known.fset and asked(known.__set__),
        known.fdel and asked(known.__delete__),
        known.__doc__,
    )


def _joined(cls: Any, **options: Any) -> None:
    """Let a new subclass of Tensor have `Asking` for a base, unless it says that it is neither asked nor told."""
    super(Tensor, cls).__init_subclass__(**options)
    told = is_told_class(cls)
    usual = getattr(cls.__torch_function__, "__func__", None) is _torch_function
    if "__torch_dispatch__" in cls.__dict__ and "__torch_function__" not in cls.__dict__ and usual:
        cls.__torch_function__ = staticmethod(disabled)  # as in PyTorch
    if (cls.__torch_function__ is disabled and not told) or "_operand" in cls.__dict__:
        return
    asking = _told() if told else _asking()
    bases = tuple(asking if base is Tensor else base for base in cls.__bases__)
    if asking not in cls.__mro__:
        cls.__bases__ = bases if asking in bases else (*bases, asking)


# -- modes ---------------------------------------------------------------------------------------

_lock = threading.Lock()


def enter(mode: Any, told: bool = False) -> None:
    """Let this thread ask `mode` first, or tell it. Tensors then have no `_operand` by which ops could pass it by."""
    (dispatching.thread.modes if told else function_modes.entered).append(mode)
    with _lock:
        overriding.append(mode)
        if told:
            telling.append(mode)
        _tensor._operand = ASKED_FIRST


def leave(told: bool = False) -> Any:
    """Undo the last `enter` of this thread."""
    mode = (dispatching.thread.modes if told else function_modes.entered).pop()
    with _lock:
        overriding.remove(mode)
        if told:
            telling.remove(mode)
        if all(isinstance(left, type) for left in overriding):
            _tensor._operand = _OPERAND
    return mode


_tensor: Any = Tensor
_tensor._operand = _OPERAND
_tensor.__torch_function__ = classmethod(_torch_function)
_tensor.__init_subclass__ = classmethod(_joined)
