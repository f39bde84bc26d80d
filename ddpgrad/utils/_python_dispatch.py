"""`torch.utils._python_dispatch`: modes that are told of every op, and helpers for classes with a `__torch_dispatch__`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Self

from ..core.dispatching import thread
from ..core.overrides import enter, leave
from ..core.tensor import Tensor
from ..library.aten.members import unwatch, watch


class TorchDispatchMode:
    """Within a `with` block of it, each op of this thread calls `__torch_dispatch__`, below autograd, in its place."""

    supports_higher_order_operators = False

    def __init__(self, _dispatch_key: Any = None) -> None:
        pass

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What `func(*args, **kwargs)` is to return, `func` being one of PyTorch's ops; a subclass defines it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        _push_mode(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _pop_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Self:
        """A mode; the older name for making one."""
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """False: all modes are programs' own."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """False: nothing is compiled."""
        return False


BaseTorchDispatchMode = TorchDispatchMode


def _push_mode(mode: Any) -> None:
    if isinstance(mode.__torch_dispatch__.__self__, type):
        raise RuntimeError(
            "Defining your mode's `__torch_dispatch__` as a classmethod is not supported, please make it a regular method"
        )
    watch(mode)
    enter(mode, told=True)


def _pop_mode(k: Any = None) -> Any:
    mode = leave(told=True)
    unwatch(mode)
    return mode


def _get_current_dispatch_mode() -> Any:
    """The innermost mode of this thread, or None."""
    return thread.modes[-1] if thread.modes else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    """The modes of this thread, the innermost last."""
    return list(thread.modes)


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether this thread is in a mode."""
    return bool(thread.modes)


def any_torch_dispatch_mode_on_stack() -> bool:
    """Whether this thread is in a mode."""
    return bool(thread.modes)


@contextmanager
def _pop_mode_temporarily(k: Any = None) -> Iterator[Any]:
    """A block outside of the innermost mode, which it gives."""
    mode = _pop_mode()
    try:
        yield mode
    finally:
        _push_mode(mode)


@contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """A block outside of all modes of this thread, which it gives."""
    modes = list(thread.modes)
    with ExitStack() as stack:
        for _ in modes:
            stack.enter_context(_pop_mode_temporarily())
        yield modes


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether `t` is a tensor of a class that says which tensors it consists of."""
    return isinstance(t, Tensor) and is_traceable_wrapper_subclass_type(type(t))


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether tensors of the class `t` say which tensors they consist of."""
    return (
        issubclass(t, Tensor)
        and t is not Tensor
        and hasattr(t, "__tensor_flatten__")
        and hasattr(t, "__tensor_unflatten__")
    )


def transform_subclass(
    t: Any, callback: Callable[[str, Any], Any], outer_size: Any = None, outer_stride: Any = None
) -> Any:
    """A tensor like `t`, of what `callback` makes of the tensors that it consists of."""
    outer_size = t.size() if outer_size is None else outer_size
    outer_stride = t.stride() if outer_stride is None else outer_stride
    names, context = t.__tensor_flatten__()
    parts = {name: callback(name, getattr(t, name)) for name in names}
    made = type(t).__tensor_unflatten__(parts, context, outer_size, outer_stride)
    if made.shape != outer_size:
        raise AssertionError(
            f"Expected return value from {type(t)}__tensor_unflatten__() to have shape equal to {outer_size}, but got: {made.shape}"
        )
    return made


class AliasInfo(NamedTuple):
    """Which memory an argument or result of an op shares, and whether it is written to."""

    alias_set: set[str]
    is_write: bool
    name: str | None


class SchemaInfo(NamedTuple):
    """The aliases among the arguments and results of an op."""

    args: list[AliasInfo]
    outs: list[AliasInfo]


def get_alias_info(func: Any) -> SchemaInfo:
    """What the schema of an op says about memory that is shared."""

    def info(argument: Any) -> AliasInfo:
        alias = argument.alias_info
        return AliasInfo(
            set(alias.before_set) if alias else set(), bool(alias and alias.is_write), argument.name
        )

    schema = func._schema
    return SchemaInfo([info(a) for a in schema.arguments], [info(r) for r in schema.returns])


def return_and_correct_aliasing(func: Any, args: Sequence[Any], kwargs: Any, out: Any) -> Any:
    """`out`, or the arguments that the op `func` has written to, which it returns.

    Instances of wrapper classes share no memory of their own here, so a view needs no more.
    """
    written = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.is_write:
            written.append(kwargs[argument.name] if argument.name in (kwargs or {}) else args[place])
    if not written:
        return out
    return written[0] if len(written) == 1 else type(out)(written)


__all__ = [
    "TorchDispatchMode", "is_in_torch_dispatch_mode", "is_traceable_wrapper_subclass", "is_traceable_wrapper_subclass_type",
    "return_and_correct_aliasing", "transform_subclass",
]  # fmt: skip
