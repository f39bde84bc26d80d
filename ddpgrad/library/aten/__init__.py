"""`torch.ops.aten`: PyTorch's own ops by name and overload, which are called, compared, and told to `__torch_dispatch__`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from ...autograd.grad_mode import mode
from ...core.dispatching import dispatch, is_told, telling, thread
from . import implementations, layers  # noqa: F401 - which fill a table
from .schema import Schema, schema_of, tags_of


class OpOverload:
    """One of PyTorch's ops, `aten.add.Tensor`: the same object whenever it is asked for."""

    namespace = "aten"

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self.overloadpacket = packet
        self._opname, self._overloadname = packet.__name__, overload
        self.__name__ = f"{packet.__name__}.{overload}"
        self.__module__ = "torch._ops.aten"
        self.__qualname__ = str(self)

    @cached_property
    def implementation(self) -> Callable[..., Any]:
        """What computes it."""
        return implementations.of(self._opname, self._overloadname)

    @cached_property
    def _schema(self) -> Schema:
        return schema_of(self._opname, self._overloadname)

    @cached_property
    def tags(self) -> list[Any]:
        """What PyTorch says of it, as far as the name tells."""
        return tags_of(self._opname)

    @property
    def op(self) -> OpOverload:
        return self

    @property
    def is_view(self) -> bool:
        """Whether the result shares the memory of an argument, which it does not change."""
        return any(a.alias_info is not None and not a.alias_info.is_write for a in self._schema.arguments)

    def name(self) -> str:
        """`aten::add.Tensor`, or `aten::relu` where there is but one."""
        return f"aten::{self._opname}" + (f".{self._overloadname}" if self._overloadname != "default" else "")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if telling:
            running = thread.running
            if is_told(args, kwargs) and not mode.enabled:
                return dispatch(self, args, kwargs)
            if running is not None and running.is_call(self, args):
                return running.compute()
        return self.implementation(*args, **kwargs)

    def decompose(self, *args: Any, **kwargs: Any) -> Any:
        """NotImplemented: what it is made of is not known."""
        return NotImplemented

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self._opname}', overload='{self._overloadname}')>"

    def __deepcopy__(self, memo: Any) -> OpOverload:
        return self

    def __reduce__(self) -> Any:
        return overload, (self._opname, self._overloadname)


class OpOverloadPacket:
    """The overloads of one op: `aten.add`. Calling it calls the one that fits."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__module__ = "torch._ops.aten"
        self._qualified_op_name = f"aten::{name}"
        self._overloads: dict[str, OpOverload] = {}

    def __getattr__(self, name: str) -> OpOverload:
        if name.startswith("__") or name == "_overloads":
            raise AttributeError(f"'{self!r}' has no attribute '{name}'", name=name, obj=self)
        made = self._overloads.setdefault(name, OpOverload(self, name))
        return self.__dict__.setdefault(name, made)

    def overloads(self) -> list[str]:
        """The names of the overloads that were asked for so far."""
        return list(self._overloads)

    @cached_property
    def _function(self) -> Callable[..., Any]:
        return implementations.of(self.__name__, "default")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"

    def __deepcopy__(self, memo: Any) -> OpOverloadPacket:
        return self

    def __reduce__(self) -> Any:
        return getattr, (ATEN, self.__name__)


class Aten:
    """`torch.ops.aten`: ops by any name."""

    def __init__(self) -> None:
        self.__name__ = "torch.ops.aten"

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name.startswith("__") and not name.endswith("shift__"):
            raise AttributeError(f"'torch.ops.aten' has no attribute '{name}'", name=name, obj=self)
        return self.__dict__.setdefault(name, OpOverloadPacket(name))

    def __reduce__(self) -> Any:
        return _aten, ()


ATEN = Aten()


def _aten() -> Aten:
    return ATEN


def overload(name: str, overload: str = "default") -> OpOverload:
    """The op of that name."""
    return getattr(getattr(ATEN, name), overload)
