"""`MeshArray`: a raw array of the whole's shape, of which each rank of a mesh holds what a `Layout` says.

It follows NumPy's protocols, so that gradient rules and what else is written for arrays compute with it: functions
elementwise come to `spreading.py`, and those that have no rule there gather the whole on every rank, so that their result
is right wherever the operands lie. Kernels of ops have rules in `mesh_kernels.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...backend.elementary.shape import address_of
from ...backend.meta.array import Flags, steps_in_order
from ...backend.registry import backend_for
from ...backend.shaped import ArrayMethods, Shaped
from ..device_mesh import DeviceMesh
from .layout import REPLICATE, Layout, Placement, layout_of
from .placements import AnyShard, Partial

Array = Any
Rule = Callable[..., Any]

FUNCTIONS: dict[Any, Rule] = {}
"""NumPy's functions that have a rule for arrays of ranks; filled by `mesh_functions.py`."""

PROTOCOL: dict[str, Rule] = {}
"""What ufuncs do, and reading and writing by index; filled by `mesh_functions.py` and `mesh_indexing.py`."""


class Memory:
    """What stands for the memory of the part of this rank."""

    __slots__ = ("mem", "ptr")

    def __init__(self, part: Array) -> None:
        base = part.base
        self.mem = part if base is None or not isinstance(base, type(part)) else base
        self.ptr = address_of(part)


class MeshArray(ArrayMethods, Shaped, NDArrayOperatorsMixin):
    """The array that lies as `layout` says, of which this rank has `part`."""

    __slots__ = ("__weakref__", "layout", "part")
    kind: ClassVar[str] = "cpu"
    __array_priority__ = 1000

    def __init__(self, part: Array, layout: Layout) -> None:
        self.part, self.layout = part, layout

    # -- what it is like -------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.layout.shape

    @property
    def mesh(self) -> DeviceMesh:
        return self.layout.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        return self.layout.placements

    @property
    def dtype(self) -> Any:
        return self.part.dtype

    @property
    def strides(self) -> tuple[int, ...]:
        """Those that the whole would have in memory of the order in which the part lies."""
        part, shape = self.part, self.shape
        steps, parts = part.strides, self.divided
        if not parts:
            return steps
        if steps == steps_in_order(part.shape, self.itemsize):
            return steps_in_order(shape, self.itemsize)
        if all(shape[d] % n == 0 for d, n in parts.items()):  # so that all ranks say the same
            wider = [
                [n for e, n in parts.items() if e != d and step >= steps[e]] for d, step in enumerate(steps)
            ]
            return tuple([step * math.prod(more) for step, more in zip(steps, wider, strict=True)])
        if part.flags.c_contiguous:
            return steps_in_order(shape, self.itemsize)
        order = sorted(range(self.ndim), key=lambda d: -part.strides[d])
        steps = steps_in_order(tuple([shape[d] for d in order]), self.itemsize)
        return tuple([steps[order.index(d)] for d in range(self.ndim)])

    @property
    def flags(self) -> Flags:
        if 1 in self.part.shape and self.divided:  # of which the order among the part's steps says nothing
            steps, shape = self.strides, self.shape
            last, first = (
                steps_in_order(shape, self.itemsize),
                steps_in_order(shape[::-1], self.itemsize)[::-1],
            )
            long = [d for d, n in enumerate(shape) if n > 1]
            return Flags(all(steps[d] == last[d] for d in long), all(steps[d] == first[d] for d in long))
        flags = self.part.flags
        return Flags(bool(flags.c_contiguous), bool(flags.f_contiguous))

    @property
    def divided(self) -> dict[int, int]:
        """The dimensions that are divided, and in how many parts."""
        parts: dict[int, int] = {}
        for size, p in zip(self.mesh.shape, self.placements, strict=True):
            if isinstance(p, AnyShard) and size > 1:
                parts[p.dim] = parts.get(p.dim, 1) * size
        return parts

    @property
    def base(self) -> Any:
        return self.part.base

    @property
    def data(self) -> Memory:
        return Memory(self.part)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"MeshArray({self.part!r}, {self.placements})"

    # -- where it lies -----------------------------------------------------------------------

    def placed(self, placements: Sequence[Placement], label: str = "redistribute") -> MeshArray:
        """The same placed otherwise: itself where nothing changes. Collective."""
        layout = self.layout.placed(placements)
        if layout is self.layout:
            return self
        return self.__class__(self.layout.moved(self.part, layout.placements, label), layout)

    def replicated(self) -> MeshArray:
        """The same on all ranks. Collective, unless it is."""
        return self.placed((REPLICATE,) * self.mesh.ndim)

    def whole(self) -> Array:
        """All of it as an ordinary array, which may be this rank's own. Collective, unless every rank has it."""
        return self.replicated().part

    def added_up(self) -> MeshArray:
        """The same without `Partial`: on all ranks what was a sum of theirs. Collective, unless there is none."""
        return self.placed(without_partial(self.placements))

    def of(self, part: Array, placements: Sequence[Placement] | None = None, shape: Any = None) -> MeshArray:
        """What lies on the same mesh, by default as this one, and consists of these parts."""
        layout = layout_of(
            self.mesh,
            self.placements if placements is None else placements,
            self.shape if shape is None else shape,
        )
        return self.__class__(part, layout)

    def everywhere(self, whole: Array) -> MeshArray:
        """`whole`, which all ranks of the mesh have alike."""
        return self.of(whole, (REPLICATE,) * self.mesh.ndim, whole.shape)

    # -- what reads elements -------------------------------------------------------------------

    def item(self) -> Any:
        return self.whole().item()

    def tolist(self) -> Any:
        return self.whole().tolist()

    def __bool__(self) -> bool:
        return bool(self.whole())

    def __int__(self) -> int:
        return int(self.whole())

    def __index__(self) -> int:
        return self.whole().__index__()

    def __float__(self) -> float:
        return float(self.whole())

    def __complex__(self) -> complex:
        return complex(self.whole())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError(
            "an array of which this rank has a part was given where an ordinary one is expected: take full_tensor(), which "
            "all ranks call together, or to_local()"
        )

    # -- functions of NumPy ----------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return PROTOCOL["ufunc"](ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        rule = FUNCTIONS.get(func)
        return on_wholes(func, args, kwargs) if rule is None else rule(*args, **kwargs)

    def __getitem__(self, index: Any) -> MeshArray:
        return PROTOCOL["read"](self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        PROTOCOL["write"](self, index, value)

    def transpose(self, *axes: Any) -> MeshArray:
        return np.transpose(
            self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        )  # type: ignore[return-value,call-overload]

    @property
    def T(self) -> MeshArray:
        return self.transpose()

    def reshape(self, *shape: Any, **options: Any) -> MeshArray:
        return np.reshape(self, shape[0] if len(shape) == 1 else shape)  # type: ignore[return-value,call-overload]

    def view(self, dtype: Any = None) -> MeshArray:
        """The same memory, of another dtype of as many bytes."""
        target = self.dtype if dtype is None else np.dtype(dtype)
        if target.itemsize == self.itemsize:
            return self.of(self.part.view(target))
        return self.everywhere(self.whole().view(target))

    @property
    def real(self) -> MeshArray:
        return self.of(self.part.real)

    @property
    def imag(self) -> MeshArray:
        return self.of(self.part.imag)

    def astype(self, dtype: Any, copy: bool = True, **options: Any) -> MeshArray:
        target = np.dtype(dtype)
        if target == self.dtype:
            return self.copy() if copy else self
        held = self if target.kind in "fc" else self.added_up()  # a sum of rounded parts would be another
        return held.of(held.part.astype(target))

    def copy(self, order: str = "C") -> MeshArray:
        return self.of(self.part.copy())

    def fill(self, value: Any) -> None:
        self[...] = value


def without_partial(placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """The placements with `Replicate` in the place of `Partial`: those of a gradient."""
    return tuple([REPLICATE if isinstance(p, Partial) else p for p in placements])


def first_of(values: Any) -> MeshArray | None:
    """The first array of ranks among the arguments of a call, or within lists, tuples and dicts there."""
    for value in values:
        if isinstance(value, MeshArray):
            return value
        if isinstance(value, (list, tuple)):
            found = first_of(value)
            if found is not None:
                return found
    return None


def replaced(value: Any, change: Callable[[MeshArray], Any]) -> Any:
    """`value` with `change` of what arrays of ranks it is or has in lists, tuples and dicts."""
    if isinstance(value, MeshArray):
        return change(value)
    if isinstance(value, (list, tuple)) and first_of(value) is not None:
        made = [replaced(v, change) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return value


def on_wholes(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`function` of all elements, computed by every rank. Collective."""
    like = first_of((*args, *kwargs.values()))
    assert like is not None
    given = [replaced(value, MeshArray.whole) for value in args]
    found = function(*given, **{key: replaced(value, MeshArray.whole) for key, value in kwargs.items()})
    return shared(like, found)


def shared(like: MeshArray, found: Any) -> Any:
    """What every rank has computed of wholes, as arrays on the mesh of `like`."""
    if isinstance(found, (np.ndarray, np.generic)) or found.__class__ is like.part.__class__:
        return like.everywhere(backend_for(like.part).asarray(found))
    if isinstance(found, (list, tuple)):
        made = [shared(like, one) for one in found]
        return type(found)(*made) if hasattr(found, "_fields") else type(found)(made)
    return found
