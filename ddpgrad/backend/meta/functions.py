"""What functions of NumPy return for MetaArrays: the shape and the dtype of their results.

The dtype, and the errors of wrong arguments, come from NumPy itself, which is given stand-ins: arrays of the
same number of dimensions whose sizes are 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...core.errors import NoElementsError
from ...core.tables import decorator_for
from .array import RULES, MetaArray, Shape, like, refuse_host

Array = Any
Rule = Callable[..., Any]


rule = decorator_for(RULES)
"""Makes the decorated function what these functions of NumPy do with MetaArrays."""


def stand_in(value: Any, sizes: Shape | None = None) -> Any:
    """A small array of the dtype of `value`, which is returned itself if it is no MetaArray."""
    if not isinstance(value, MetaArray):
        return value
    return np.ones([min(n, 1) for n in value.shape] if sizes is None else sizes, value.dtype)


def shape_of(value: Any) -> Shape:
    return getattr(value, "shape", ())


# -- ufuncs ---------------------------------------------------------------------------------------


def apply_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`ufunc(*inputs)` or one of its methods; the result lies in memory as the first operand of its shape."""
    refuse_host(*(inputs[::2] if method == "at" else inputs))  # an index may be on the host
    out = kwargs.pop("out", None)
    if method == "at":
        inputs[0][inputs[1]] = inputs[2] if len(inputs) > 2 else 0
        return None
    if method == "reduce":
        return _into(out, reduced(ufunc.reduce, *inputs, **{"axis": 0, **kwargs}))
    if method != "__call__":
        raise NoElementsError(f"numpy.{ufunc.__name__}.{method} has no rule")
    if ufunc is np.matmul:
        return _into(out, _matmul(*inputs))
    if ufunc.signature is not None:
        raise NoElementsError(f"numpy.{ufunc.__name__} has no rule")
    small = ufunc(*[stand_in(x, ()) for x in inputs], **kwargs)
    return _into(out, _elementwise(inputs, small))


def _elementwise(operands: Sequence[Any], small: Any) -> Any:
    """Of the operands' common shape, and of the dtype of `small`, or of as many as it is a tuple of."""
    shape = np.broadcast_shapes(*map(shape_of, operands))
    first = next((x for x in operands if isinstance(x, MetaArray) and x.shape == shape), None)
    made = [
        MetaArray(shape, one.dtype) if first is None else like(first, one.dtype)
        for one in (small if isinstance(small, tuple) else (small,))
    ]
    return tuple(made) if isinstance(small, tuple) else made[0]


def _into(out: Any, result: Any) -> Any:
    """`result`, or the array that the caller gave for it, if it fits there."""
    target = out[0] if isinstance(out, tuple) else out
    if target is None:
        return result
    if target.shape != result.shape:
        raise ValueError(
            f"non-broadcastable output operand with shape {target.shape} doesn't match the broadcast shape {result.shape}"
        )
    if not np.can_cast(result.dtype, target.dtype, "same_kind"):
        raise TypeError(f"cannot cast the result from {result.dtype} to {target.dtype}")
    return target


def _matmul(input: MetaArray, other: MetaArray) -> MetaArray:
    a, b = shape_of(input), shape_of(other)
    if not a or not b or a[-1] != b[-2:][0]:
        raise ValueError(
            f"matmul: operands of shapes {a} and {b} have a mismatch in the dimension that is summed"
        )
    dtype = input.dtype
    if other.dtype != dtype:  # of one type NumPy has products that it computes in another
        dtype = np.matmul(stand_in(input, (1, 1)), stand_in(other, (1, 1))).dtype
    lead = np.broadcast_shapes(a[:-2], b[:-2])
    return MetaArray((*lead, *a[-2:-1], *(b[-1:] if len(b) > 1 else ())), dtype)


@rule(np.dot)
def _dot(a: Any, b: Any) -> MetaArray:
    if len(shape_of(a)) > 2 or len(shape_of(b)) > 2:
        raise NoElementsError("numpy.dot of more than two dimensions has no rule")
    return _matmul(a, b)


# -- reductions and scans ---------------------------------------------------------------------------


def reduced(function: Any, a: MetaArray, axis: Any = None, dtype: Any = None, **kwargs: Any) -> MetaArray:
    """`function` of NumPy over `axis`: all dimensions, several or one."""
    if dtype is not None:
        kwargs["dtype"] = dtype
    small = function(stand_in(a), axis=axis, **kwargs)
    axes = range(a.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    gone = {d % a.ndim for d in axes} if a.ndim else set()
    keep = kwargs.get("keepdims", False)
    return MetaArray(
        [1 if d in gone else n for d, n in enumerate(a.shape) if keep or d not in gone], small.dtype
    )


for _function in (
    np.sum, np.prod, np.max, np.min, np.all, np.any, np.mean, np.var, np.std, np.argmax, np.argmin,
):  # fmt: skip
    RULES[_function] = partial(reduced, _function)


def _same_shape(function: Any, a: MetaArray, *args: Any, **kwargs: Any) -> MetaArray:
    """`function` of NumPy that changes elements, or their order, and not how many there are."""
    return MetaArray(a.shape, function(stand_in(a), *args, **kwargs).dtype)


for _function in (
    np.argsort, np.cumprod, np.cumsum, np.flip, np.isneginf, np.isposinf, np.nan_to_num, np.real_if_close, np.roll,
    np.round, np.sort, np.tril, np.triu,
):  # fmt: skip
    RULES[_function] = partial(_same_shape, _function)


@rule(np.argpartition)
def _argpartition(a: MetaArray, kth: Any, axis: int = -1, **options: Any) -> MetaArray:
    return MetaArray(a.shape, np.intp)


@rule(np.searchsorted)
def _searchsorted(a: MetaArray, v: Any, side: str = "left", sorter: Any = None) -> MetaArray:
    return MetaArray(shape_of(v), np.intp)


@rule(np.isin)
def _isin(element: Any, test_elements: Any) -> MetaArray:
    return MetaArray(shape_of(element), np.bool_)


@rule(np.unique, np.nonzero, np.bincount, np.argwhere, np.flatnonzero)
def _as_many_as_elements_say(*args: Any, **kwargs: Any) -> Any:
    raise NoElementsError("the shape of the result depends on elements, which tensors on meta do not have")


# -- elementwise ------------------------------------------------------------------------------------


@rule(np.where)
def _where(condition: Any, x: Any = None, y: Any = None) -> MetaArray:
    if x is None:
        return _as_many_as_elements_say()
    refuse_host(condition, x, y)
    return _elementwise((condition, x, y), np.where(True, stand_in(x, ()), stand_in(y, ())))


@rule(np.clip)
def _clip(a: Any, a_min: Any = None, a_max: Any = None) -> MetaArray:
    refuse_host(a, a_min, a_max)
    small = np.clip(*[stand_in(x, ()) for x in (a, a_min, a_max)])
    return _elementwise([x for x in (a, a_min, a_max) if x is not None], small)


@rule(np.conj)
def _conj(a: MetaArray) -> MetaArray:
    return like(a, a.dtype)


@rule(np.result_type)
def _result_type(*operands: Any) -> np.dtype[Any]:
    return np.result_type(*[stand_in(x, ()) for x in operands])


# -- shapes -----------------------------------------------------------------------------------------


@rule(np.broadcast_to)
def _broadcast_to(array: MetaArray, shape: Any) -> MetaArray:
    return array._view(lambda layout: np.broadcast_to(layout, shape))


@rule(np.moveaxis)
def _moveaxis(a: MetaArray, source: Any, destination: Any) -> MetaArray:
    return a._view(lambda layout: np.moveaxis(layout, source, destination))


@rule(np.expand_dims)
def _expand_dims(a: MetaArray, axis: Any) -> MetaArray:
    return a._view(lambda layout: np.expand_dims(layout, axis))


@rule(np.concatenate)
def _concatenate(arrays: Sequence[Any], axis: int = 0) -> MetaArray:
    refuse_host(*arrays)
    small = np.concatenate([stand_in(a, (0,) * len(shape_of(a))) for a in arrays], axis)
    axis %= small.ndim
    first, *others = [[n for d, n in enumerate(a.shape) if d != axis] for a in arrays]
    if any(other != first for other in others):
        raise ValueError(
            "all the input array dimensions except for the concatenation axis must match exactly: the shapes are "
            f"{', '.join(str(a.shape) for a in arrays)}"
        )
    shape = list(arrays[0].shape)
    shape[axis] = sum(a.shape[axis] for a in arrays)
    return MetaArray(shape, small.dtype)


@rule(np.stack)
def _stack(arrays: Sequence[Any], axis: int = 0) -> MetaArray:
    return _concatenate([_expand_dims(a, axis) for a in arrays], axis)


@rule(np.tile)
def _tile(a: MetaArray, reps: Any) -> MetaArray:
    times = tuple(reps) if isinstance(reps, (tuple, list)) else (reps,)
    ndim = max(a.ndim, len(times))
    shapes = [(1,) * (ndim - len(s)) + s for s in (a.shape, times)]
    return MetaArray([n * k for n, k in zip(*shapes, strict=True)], a.dtype)


@rule(np.repeat)
def _repeat(a: MetaArray, repeats: Any, axis: int | None = None) -> MetaArray:
    if isinstance(repeats, MetaArray):
        raise NoElementsError("how often elements are repeated is told by elements, which are not there")
    shape = [a.size] if axis is None else list(a.shape)
    place = 0 if axis is None else axis % a.ndim
    shape[place] = int(np.broadcast_to(repeats, shape[place]).sum())
    return MetaArray(shape, a.dtype)


# -- reading and writing by index ---------------------------------------------------------------------


@rule(np.take)
def _take(a: MetaArray, indices: Any, axis: int | None = None, **options: Any) -> MetaArray:
    if axis is None:
        return MetaArray(shape_of(indices), a.dtype)
    before = (slice(None),) * (axis % a.ndim)
    return MetaArray((*a.shape[: len(before)], *shape_of(indices), *a.shape[len(before) + 1 :]), a.dtype)


@rule(np.take_along_axis)
def _take_along_axis(arr: MetaArray, indices: MetaArray, axis: int | None = -1) -> MetaArray:
    axis = -1 if axis is None else axis
    shape = list(
        np.broadcast_shapes(arr[(slice(None),) * (axis % arr.ndim) + (slice(1),)].shape, indices.shape)
    )
    return MetaArray(shape, arr.dtype)


@rule(np.put_along_axis, np.copyto)
def _written(*args: Any, **kwargs: Any) -> None:
    refuse_host(*args)


# -- new arrays ---------------------------------------------------------------------------------------


def empty(shape: Any, dtype: Any = float, **options: Any) -> MetaArray:
    """A new array, as `numpy.empty`."""
    return MetaArray(shape if isinstance(shape, (tuple, list)) else (int(shape),), dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> MetaArray:
    return empty(shape, np.full((), fill_value, dtype).dtype)


def arange(*bounds: Any, dtype: Any = None) -> MetaArray:
    start, end, step = (0, *bounds, 1)[-3:] if len(bounds) == 1 else (*bounds, 1)[:3]
    kind = np.arange(*[type(bound)(0) for bound in bounds[:2]], dtype=dtype).dtype if dtype is None else dtype
    return MetaArray((max(0, math.ceil((end - start) / step)),), kind)


def eye(n: int, m: int | None = None, dtype: Any = float) -> MetaArray:
    return MetaArray((n, n if m is None else m), dtype)


def asarray(data: Any, dtype: Any = None, copy: bool = False) -> MetaArray:
    """`data`, or an array of its shape."""
    if isinstance(data, MetaArray):
        return data.astype(data.dtype if dtype is None else dtype, copy=copy)
    host = np.asarray(data, dtype)
    return MetaArray(host.shape, host.dtype)


def ascontiguousarray(a: MetaArray) -> MetaArray:
    return a if a.flags.c_contiguous else MetaArray(a.shape, a.dtype)


def _filled_like(
    a: MetaArray, *value: Any, dtype: Any = None, shape: Any = None, **options: Any
) -> MetaArray:
    return MetaArray(a.shape if shape is None else shape, a.dtype if dtype is None else dtype)


for _function in (np.empty_like, np.zeros_like, np.ones_like, np.full_like):
    RULES[_function] = _filled_like
