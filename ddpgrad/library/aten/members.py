"""What instances of a class with a `__torch_dispatch__` have otherwise than other tensors."""

from __future__ import annotations

import copy
import functools
from typing import Any

from ...autograd.grad_mode import no_grad
from ...backend import device as devices
from ...backend import dtype as dtypes
from ...backend.meta.array import MetaArray, steps_in_order
from ...core.dispatching import (
    in_mode,
    is_told_class,
    own_attributes,
    tell_in_place,
    tell_part,
    tells,
    told_members,
)
from ...core.errors import NoElementsError
from ...core.tensor import Tensor, wrap


def _device(self: Tensor) -> devices.Device:
    """The device that the tensor says it is on."""
    array = self._array
    return array.device if isinstance(array, Bodiless) else Tensor.device.fget(self)  # type: ignore[attr-defined]


class Bodiless(MetaArray):
    """The array of a tensor that is without memory: how it is shaped. What computes with it has asked nobody, and fails."""

    __slots__ = ("device", "offset")

    device: devices.Device  # where the tensor says it is
    offset: int  # where in its memory

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise NoElementsError(
            "a tensor without memory of its own, as _make_wrapper_subclass makes it, has met a function that does not tell its "
            "__torch_dispatch__ what it does"
        )

    __array_ufunc__ = __array_function__ = __setitem__ = astype = copy = fill = _refuse


def make_wrapper(
    cls: Any,
    size: Any,
    *,
    strides: Any = None,
    storage_offset: Any = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    dispatch_sizes_strides_policy: Any = None,
    dispatch_device: bool = False,
    dispatch_layout: bool = False,
    storage_size: Any = None,
) -> Any:
    """A tensor without memory, of a class that answers for it: what `Tensor._make_wrapper_subclass` makes."""
    if not is_told_class(cls):
        raise TypeError(f"{cls.__name__} must define __torch_dispatch__")
    kind = (dtypes.of(dtype) if dtype is not None else dtypes.get_default_dtype()).numpy
    shape = tuple(int(n) for n in size)
    steps = (
        steps_in_order(shape, kind.itemsize)
        if strides is None
        else tuple(int(n) * kind.itemsize for n in strides)
    )
    array = Bodiless(shape, kind, None, steps)
    array.device = devices.of(device if device is not None else devices.default())
    array.offset = int(storage_offset or 0)
    made = wrap(array, cls)
    if requires_grad:
        made._requires_grad = True
    return made


def _told(name: str) -> Any:
    """The method `name` of Tensor, of which a part that PyTorch tells of is told."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return tell_part(name, (self, *args), kwargs)

    return method


def _has_no_memory(self: Tensor) -> bool:
    return isinstance(self._array, Bodiless)


def _storage_offset(self: Tensor) -> int:
    """Where the first element lies in the memory that the tensor says it has."""
    return self._array.offset if _has_no_memory(self) else _offset(self)


def _refused(name: str) -> Any:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f".{name}() is not supported for tensor subclasses.")

    return method


def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Any:
    """What `clone` gives, with copies of the attributes."""
    if not _has_no_memory(self):
        return _copied(self, memo)
    if self._grad_fn is not None:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment"
        )
    if id(self) in memo:
        return memo[id(self)]
    with no_grad():
        made: Any = self.clone()
    if type(made) is not type(self):
        raise RuntimeError(
            f"The default implementation of __deepcopy__() for wrapper subclasses only works for types whose clone() returns "
            f"another of them; got {type(made).__name__} for {type(self).__name__}"
        )
    memo[id(self)] = made
    made._requires_grad = self._requires_grad
    for name, value in own_attributes(self).items():
        setattr(made, name, copy.deepcopy(value, memo))
    if self._grad is not None:
        made._grad = copy.deepcopy(self._grad, memo)
    return made


def rebuild_wrapper(
    kind: type,
    size: Any,
    strides: Any,
    offset: int,
    dtype: Any,
    device: str,
    requires_grad: bool,
    attributes: Any,
) -> Any:
    """The tensor without memory that a pickle describes."""
    made = make_wrapper(
        kind,
        size,
        strides=strides,
        storage_offset=offset,
        dtype=dtype,
        device=device,
        requires_grad=requires_grad,
    )
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def _reduce_ex(self: Tensor, protocol: Any) -> Any:
    if not _has_no_memory(self):
        return _reduced(self, protocol)
    form = tuple(self.shape), self.stride(), _storage_offset(self), self.dtype, str(self.device)
    return rebuild_wrapper, (type(self), *form, self._requires_grad, own_attributes(self))


_offset, _copied, _reduced = (
    getattr(Tensor, name) for name in ("storage_offset", "__deepcopy__", "__reduce_ex__")
)

_MEMBERS: dict[str, Any] = {
    "storage_offset": _storage_offset,
    "numpy": _refused("numpy"),
    "tolist": _refused("tolist"),
    "__deepcopy__": _deepcopy,
    "__reduce_ex__": _reduce_ex,
    "device": property(_device),
    "is_meta": property(lambda self: _device(self).type == "meta"),
    "is_cuda": property(lambda self: _device(self).type == "cuda"),
    "is_cpu": property(lambda self: _device(self).type == "cpu"),
    "__iter__": lambda self: iter(self.unbind(0)),
}


@told_members.register
def _members() -> dict[str, Any]:
    return _MEMBERS


_WATCHED = ("__iter__",)
_WATCHED_IN_PLACE = (
    "bernoulli_", "cauchy_", "exponential_", "geometric_", "index_add_", "index_copy_", "index_fill_", "index_put_",
    "log_normal_", "masked_fill_", "normal_", "random_", "resize_", "scatter_", "scatter_add_", "squeeze_", "t_",
    "transpose_", "uniform_", "unsqueeze_",
)  # fmt: skip
_before: dict[str, Any] = {}
_users: list[object] = []


def watch(user: object) -> None:
    """Let methods of Tensor that ask nobody tell modes and classes, until `user` calls `unwatch`."""
    if not _users:
        for name in (*_WATCHED, *_WATCHED_IN_PLACE):
            known = _before[name] = Tensor.__dict__[name]
            setattr(Tensor, name, (_watched if name in _WATCHED else _watched_in_place)(name, known))
    _users.append(user)


def unwatch(user: object) -> None:
    """Undo `watch`."""
    _users.remove(user)
    if not _users:
        for name, known in _before.items():
            setattr(Tensor, name, known)


def _watched(name: str, known: Any) -> Any:
    told = _told(name)

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return (told if in_mode() or tells(self) else known)(self, *args, **kwargs)

    method.__name__ = name
    return method


def _watched_in_place(name: str, known: Any) -> Any:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not (in_mode() or tells(self)):
            return known(self, *args, **kwargs)
        return tell_in_place(known, name, (self, *args), kwargs)

    return functools.wraps(known)(method)
