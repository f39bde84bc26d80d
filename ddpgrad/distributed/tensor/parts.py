"""Raw arrays that no kernel may take for the whole: one rank's rows of a tensor, on any device.

They hold an array instead of being one, and so neither NumPy nor CuPy computes with them by mistake. Each kind of device
has a class of its own, made when it is first needed, whose backend has the kernels that make sense.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np

from ...backend.elementary.shape import address_of
from ...backend.registry import Backend, Kernel, add_backend, backend_for, backend_of
from . import norms
from .layout import Layout
from .mesh_array import MeshArray

WHY_NOT = (
    "not defined for a DTensor, of which this rank has a part only: call full_tensor(), on all ranks together, or to_local() "
    "for this rank's part. Under fully_shard call the module that was sharded: its forward() and its parts have no whole "
    "parameters by themselves"
)


class Refused(NotImplementedError, AttributeError):
    """What is asked for takes the whole. An AttributeError too, so that `hasattr` can ask."""


class Place(NamedTuple):
    """Where elements lie in memory, said as CuPy's arrays say it."""

    ptr: int
    device_id: int = 0


class Withheld:
    """Has the shape, dtype and place of `array`, and none of its arithmetic. why: what errors say."""

    __slots__ = ("__weakref__", "array")
    why: ClassVar[str]

    def __init__(self, array: Any) -> None:
        self.array = array

    @classmethod
    def kernels(cls, F: Backend) -> Mapping[str, Kernel]:
        """Those that there are, by name, on the device kind of `F`."""
        return {}

    @classmethod
    def of(cls, array: Any) -> Self:
        """What withholds `array`, of the class for its device kind."""
        return _class_for(cls, backend_for(array).kind)(array)

    def _refuse(self, function: Any, *args: Any, **options: Any) -> NoReturn:
        name = function if isinstance(function, str) else getattr(function, "__name__", "this kernel")
        raise NotImplementedError(f"{name}: {self.why}")

    # Where the first operand of a kernel is an ordinary array, its library comes here.
    __array_ufunc__ = __array_function__ = __cupy_override_elementwise_kernel__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        raise Refused(f"{name}: {self.why}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self.array.strides

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def size(self) -> int:
        return self.array.size

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def itemsize(self) -> int:
        return self.array.itemsize

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    @property
    def flags(self) -> Any:
        return self.array.flags

    @property
    def base(self) -> Any:
        """The array whose memory it is, as for any array: arrays that have it in common are neighbours there."""
        return self.array.base

    @property
    def data(self) -> Any:
        return Place(address_of(self.array)) if isinstance(self.array, np.ndarray) else self.array.data


def _refused(name: str) -> Any:
    return lambda self, other: self._refuse(name)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "pow", "matmul"):
    for _kind in ("", "r"):
        setattr(Withheld, f"__{_kind}{_name}__", _refused(_name))


@functools.cache
def _class_for(base: type[Withheld], kind: str) -> Any:
    cls = type(base.__name__, (base,), {"__slots__": (), "__module__": base.__module__})
    add_backend(PartialBackend(kind, cls, base.kernels(backend_of(kind)), base.why))
    return cls


class PartialBackend(Backend):
    """A class of arrays with these kernels; all others are errors that say `why`."""

    def __init__(self, kind: str, array_type: type, kernels: Mapping[str, Kernel], why: str) -> None:
        F = backend_of(kind)
        super().__init__(kind, array_type, kernels, {}, lambda x: F.device_of(x.array), library=F.library)
        self._why = why

    def find(self, name: str) -> Kernel:
        def refuse(*args: Any, **options: Any) -> Any:
            raise NotImplementedError(f"{name}: {self._why}")

        return self._elementary.get(name, refuse)


class ShardArray(Withheld):
    """The rows of one rank: an array for the kernels of optimizers, and for no others (see `kernels`).

    layout: of the whole; None for memory in which there are rows of several. Written to as a whole (`a[...] = value`) it
    takes its rows of a value that has all of them.
    """

    __slots__ = ("layout",)
    why = WHY_NOT

    def __init__(self, array: Any) -> None:
        super().__init__(array)
        self.layout: Layout | None = None

    def __setitem__(self, index: Any, value: Any) -> None:
        layout = self.layout
        if layout is not None:
            if index is not Ellipsis and index != (Ellipsis,):
                raise NotImplementedError(f"writing by index: {WHY_NOT}")
            if getattr(value, "shape", None) == layout.shape and not isinstance(value, ShardArray):
                value = value[layout.index]
        self.array[index] = plain(value)

    def __getitem__(self, index: Any) -> ShardArray:
        return self._as(self.array[index])

    def reshape(self, *shape: Any) -> ShardArray:
        return self._as(self.array.reshape(*shape))

    def view(self, *dtype: Any) -> ShardArray:
        return self._as(self.array.view(*dtype))

    @property
    def real(self) -> ShardArray:
        return self._as(self.array.real)

    def placed_at(self, memory: Any) -> ShardArray:
        """`memory`, which has this shape, in the place of this array."""
        return placed(memory, self.layout)

    def _as(self, array: Any) -> ShardArray:
        return self.__class__(array)

    @classmethod
    def kernels(cls, F: Backend) -> Mapping[str, Kernel]:
        """Those of `F` that treat every element by itself, on this rank's part; and what ranks find together."""
        return {
            "asarray": lambda x, *args: F.asarray(plain(x), *args),
            "clip_": lambda arrays, *args: _unless_empty(F.clip_, arrays, *args),
            "contiguous": lambda x: x if x.flags.c_contiguous else placed(F.contiguous(x.array), x.layout),
            "new_zeros": functools.partial(_new_zeros, F),
            "root_of_squares": functools.partial(norms.root_of_squares, F),
            "sum_of_squares": lambda x: norms.sums_of_squares(F, [x]),
            "sums_of_squares": functools.partial(norms.sums_of_squares, F),
            "scale_": lambda x, factor: F.scale_(x.array, factor),
            "unscale_": functools.partial(norms.unscale_, F),
            "update_": functools.partial(_update_, F),
        }


def placed(array: Any, layout: Layout | None) -> ShardArray:
    """`array` as this rank's part of a tensor that lies as `layout` says. Memory is shared."""
    if isinstance(array, ShardArray):
        if array.layout is layout:
            return array
        array = array.array
    part = ShardArray.of(array)
    part.layout = layout
    return part


def plain(value: Any) -> Any:
    """This rank's ordinary array for one of ranks, also within lists and tuples; other values as they are."""
    if isinstance(value, ShardArray):
        return value.array
    if isinstance(value, MeshArray):
        return value.part
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _unless_empty(kernel: Kernel, arrays: Any, *args: Any) -> None:
    """Call `kernel` for those of `arrays` that have elements: a rank may have no rows of some."""
    if full := [x.array for x in arrays if x.size]:
        kernel(full, *args)


def _update_(F: Backend, rule: Any, targets: Any, *args: Any, **options: Any) -> None:
    if full := [plain(target) for target in targets if target[0].size]:
        F.update_(rule, full, *args, **options)


def _new_zeros(F: Backend, like: ShardArray, shape: Any) -> ShardArray:
    zeros = F.new_zeros(plain(like), shape)
    return placed(zeros, like.layout if tuple(shape) == like.shape else None)
