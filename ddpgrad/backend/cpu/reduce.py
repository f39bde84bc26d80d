"""Compiled sums for the CPU, where the kept dimensions are side by side: bias gradients, means, totals.

NumPy adds up the inner dimensions of (N, C, H, W) a row at a time and does not vectorise the
sum of a short row. Partial sums are short and then added in float64, in an order that the
shape alone decides.
"""

from __future__ import annotations

import functools
import math
import sys
from functools import partial
from typing import Any

import numpy as np

from ..layout import reduced_in_order
from .threads import in_parts, shared
from .vectormath import compiled_for, exp_of_negative, from_ordered, kernel, to_ordered, widened

# Below this many elements NumPy's own sum is done before a compiled one has started.
_WORTH_IT = 4096
# Elements that are added up in the data's own type before they join the total.
_BLOCK = 512


def sum(
    input: np.ndarray, dim: int | tuple[int, ...] | None = None, keepdim: bool = False, dtype: Any = None
) -> np.ndarray:
    """The sum over `dim` (an int, a tuple of ints, None for all) of floats; those of 16 bits are added in float32."""
    if dtype is not None:
        return NotImplemented
    if not compiled_for(input):
        total = _half_total(input, dim, keepdim)
        return NotImplemented if total is None else total.astype(input.dtype)
    if input.size < _WORTH_IT or not input.flags.c_contiguous:
        if dim == 0 and input.ndim == 2 and input.size < _WORTH_IT and not keepdim:  # as of a bias
            return _ones(len(input), input.dtype).dot(input)
        if input.size >= _WORTH_IT and input.ndim == 2 and input.flags.f_contiguous:
            dims = _dims(dim, 2)
            return sum(input.T, tuple([1 - d for d in dims])).reshape(_shape(input.shape, dims, keepdim))
        return _reduced(np.add, input, dim, keepdim)
    dims = _dims(dim, input.ndim)
    split = _split(input.shape, dims)
    if split is None:
        return np.add.reduce(input, dim, None, None, keepdim)  # pyright: ignore[reportCallIssue]
    return _summed(input, split, np.empty(split[1], input.dtype)).reshape(_shape(input.shape, dims, keepdim))


def _reduced(ufunc: np.ufunc, input: np.ndarray, dim: Any, keepdim: bool) -> np.ndarray:
    """NumPy's own reduction. With an output it returns an array, which is quicker than to make one of its scalar."""
    out = np.empty((), input.dtype) if dim is None and not keepdim else None
    found = ufunc.reduce(input, dim, None, out, keepdim)  # pyright: ignore[reportCallIssue]
    return found if input.ndim < 3 else reduced_in_order(found, input.ndim)


def nansum(
    input: np.ndarray, dim: int | tuple[int, ...] | None = None, keepdim: bool = False, dtype: Any = None
) -> np.ndarray:
    """`sum`, where that is no nan: then there was none to leave out."""
    total = sum(input, dim, keepdim, dtype)
    return NotImplemented if total is NotImplemented or np.isnan(total).any() else total


def median_of_all(input: np.ndarray, skip_nan: bool) -> np.ndarray:
    """The median of all elements, the lower of two, where none is nan."""
    if input.dtype.kind not in "iu" and (not compiled_for(input) or np.isnan(input.max())):
        return NotImplemented
    middle = (input.size - 1) // 2
    return np.asarray(np.partition(input, middle, None)[middle])


@functools.lru_cache(64)
def _ones(count: int, dtype: np.dtype) -> np.ndarray:
    return np.ones(count, dtype)


def _half_total(input: np.ndarray, dim: int | tuple[int, ...] | None, keepdim: bool) -> np.ndarray | None:
    """The sum of floats of 16 bits as float32; None for what NumPy adds sooner, and for other types."""
    from .half import is_half, stored

    if input.size < _WORTH_IT or not input.flags.c_contiguous or not is_half(input.dtype):
        return None
    dims = _dims(dim, input.ndim)
    split = _split(input.shape, dims)
    if split is None:
        return None
    total = _summed(stored(input), split, np.empty(split[1], np.float32))
    return total.reshape(_shape(input.shape, dims, keepdim))


def _summed(input: np.ndarray, split: tuple[int, int, int], out: np.ndarray) -> np.ndarray:
    if split[2] == 1:
        in_parts(partial(_sum_columns, input.reshape(split[:2]), out), len(out), input.size)
    else:
        in_parts(partial(_sum_rows, input.reshape(split), out), len(out), input.size)
    return out


def mean(
    input: np.ndarray, dim: int | tuple[int, ...] | None = None, keepdim: bool = False, dtype: Any = None
) -> np.ndarray:
    """The mean over `dim` of float32 or float64: the sum, divided by the number of elements in each."""
    if dtype is None and input.dtype.itemsize == 2:
        total = _half_total(input, dim, keepdim)
        return NotImplemented if total is None else (total / (input.size // total.size)).astype(input.dtype)
    total = sum(input, dim, keepdim, dtype)
    if total is NotImplemented or not total.size:
        return NotImplemented
    if not input.size:
        return np.full_like(total, np.nan)
    count = input.size // total.size
    return np.true_divide(total, count, out=total) if total.__class__ is np.ndarray else total / count


def var(
    input: np.ndarray,
    dim: int | tuple[int, ...] | None = None,
    correction: float = 1,
    keepdim: bool = False,
    unbiased: bool | None = None,
) -> np.ndarray:
    """The variance over `dim` of float32 or float64, with `correction` degrees of freedom taken off."""
    if not input.ndim or not input.size or not compiled_for(input):
        return NotImplemented
    total = _of_rows(_spreads, input, dim, keepdim)
    if total is None:
        centred = input - mean(input, dim, True)
        total = sum(np.multiply(centred, centred, out=centred), dim, keepdim)
    freedom = input.size // total.size - correction
    return total / freedom if freedom > 0 else NotImplemented


def std(
    input: np.ndarray,
    dim: int | tuple[int, ...] | None = None,
    correction: float = 1,
    keepdim: bool = False,
    unbiased: bool | None = None,
) -> np.ndarray:
    """The square root of `var`."""
    spread = var(input, dim, correction, keepdim)
    return NotImplemented if spread is NotImplemented else np.sqrt(spread)


def vector_norm(x: np.ndarray, ord: float, dim: tuple[int, ...], keepdim: bool = False) -> np.ndarray:
    """The Euclidean norm over `dim`, where that is all dimensions or the last ones, and elements lie one after another."""
    if ord != 2 or not x.size or not compiled_for(x):
        return NotImplemented
    dims = _dims(dim, x.ndim)
    if len(dims) == x.ndim and x.flags.forc:
        flat = x.ravel("K")
        if x.size < _WORTH_IT:
            total = np.sqrt(flat.dot(flat), out=np.empty((), x.dtype))
        else:
            total = np.empty(1, x.dtype)
            _norms(flat[None], total)
        return total.reshape((1,) * x.ndim if keepdim else ())
    split = _split(x.shape, dims) if x.flags.c_contiguous else None
    if split is None or split[0] != 1 or x.size < _WORTH_IT:
        return NotImplemented
    out = np.empty(split[1], x.dtype)
    _norms(x.reshape(split[1:]), out)
    return out.reshape(_shape(x.shape, dims, keepdim))


def logsumexp(input: np.ndarray, dim: int | tuple[int, ...], keepdim: bool = False) -> np.ndarray:
    """log(sum(exp(input))) over `dim`, where that is the last dimensions."""
    found = _of_rows(_log_sums, input, dim, keepdim) if compiled_for(input) else None
    return NotImplemented if found is None else found


def amax(input: np.ndarray, dim: int | tuple[int, ...] | None = None, keepdim: bool = False) -> np.ndarray:
    """The largest element over `dim`, NaN where there is one."""
    # Without the questions that the method asks first.
    if not compiled_for(input):
        return NotImplemented
    if input.size >= _WORTH_IT and (out := _of_short_rows(input, dim, keepdim, True)) is not None:
        return out
    return _reduced(np.maximum, input, dim, keepdim)


def amin(input: np.ndarray, dim: int | tuple[int, ...] | None = None, keepdim: bool = False) -> np.ndarray:
    """The smallest element over `dim`, NaN where there is one."""
    if not compiled_for(input):
        return NotImplemented
    if input.size >= _WORTH_IT and (out := _of_short_rows(input, dim, keepdim, False)) is not None:
        return out
    return _reduced(np.minimum, input, dim, keepdim)


def prod(
    input: np.ndarray, dim: int | tuple[int, ...] | None = None, keepdim: bool = False, dtype: Any = None
) -> np.ndarray:
    """The product over `dim`, where that is the last dimensions."""
    if dtype is not None or input.size < _WORTH_IT or not compiled_for(input):
        return NotImplemented
    found = _of_rows(_products_of_rows, input, dim, keepdim)
    return NotImplemented if found is None else found


# Elements of rows whose extremes NumPy finds no later.
_LONG = 2048


def _of_short_rows(input: np.ndarray, dim: Any, keepdim: bool, largest: bool) -> np.ndarray | None:
    """The extreme of rows, where they lie one after another and are short; else None."""
    return _of_rows(_extremes, input, dim, keepdim, _LONG, largest)


def _of_rows(
    loop: Any, input: np.ndarray, dim: Any, keepdim: bool, longest: int = sys.maxsize, *options: Any
) -> np.ndarray | None:
    """What a loop makes of each row, where many elements lie in rows, one after another; else None."""
    if input.size < _WORTH_IT or not input.flags.c_contiguous:
        return None
    dims = _dims(dim, input.ndim)
    split = _split(input.shape, dims)
    if split is None or split[0] != 1 or not 1 < split[2] <= longest:
        return None
    out = np.empty(split[1], input.dtype)
    loop(input.reshape(split[1:]), *options, out)
    return out.reshape(_shape(input.shape, dims, keepdim))


def _dims(dim: int | tuple[int, ...] | None, ndim: int) -> set[int]:
    if dim is None:
        return set(range(ndim))
    return {d % ndim for d in ((dim,) if isinstance(dim, int) else dim)} if ndim else set()


def _split(shape: tuple[int, ...], dims: set[int]) -> tuple[int, int, int] | None:
    """(summed, kept, summed) sizes, or None if the kept dimensions are not neighbours."""
    kept = [d for d in range(len(shape)) if d not in dims]
    if not kept:
        return 1, 1, math.prod(shape)
    if kept[-1] - kept[0] >= len(kept):
        return None
    return (
        math.prod(shape[: kept[0]]),
        math.prod(shape[kept[0] : kept[-1] + 1]),
        math.prod(shape[kept[-1] + 1 :]),
    )


def _shape(shape: tuple[int, ...], dims: set[int], keepdim: bool) -> tuple[int, ...]:
    if keepdim:
        return tuple(1 if d in dims else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in dims)


@shared("x", "out")
@kernel
def _products_of_rows(x, out):
    for i in range(x.shape[0]):
        row, total = x[i], out.dtype.type(1)
        for j in range(row.size):
            total *= row[j]
        out[i] = total


@shared("x", "out")
@kernel
def _extremes(x, largest, out):
    turn = x.dtype.type(1 if largest else -1)
    for i in range(x.shape[0]):
        row = x[i]
        key, nan = to_ordered(turn * row[0]), False
        for j in range(row.size):
            value = turn * row[j]
            k = to_ordered(value)
            key = k if k > key else key
            nan |= value != value
        out[i] = x.dtype.type(np.nan) if nan else turn * from_ordered(key)


@shared("x", "out")
@kernel
def _spreads(x, out):
    """The sum of the squares of what is left of each row without its mean."""
    number = out.dtype.type
    for i in range(x.shape[0]):
        total, spread = 0.0, 0.0
        for start in range(0, x.shape[1], _BLOCK):
            block, part = x[i, start : start + _BLOCK], number(0)
            for k in range(block.size):
                part += block[k]
            total += part
        mean = number(total / x.shape[1])
        for start in range(0, x.shape[1], _BLOCK):
            block, part = x[i, start : start + _BLOCK], number(0)
            for k in range(block.size):
                part += (block[k] - mean) * (block[k] - mean)
            spread += part
        out[i] = number(spread)


@shared("x", "out")
@kernel
def _log_sums(x, out):
    number = out.dtype.type
    for i in range(x.shape[0]):
        row = x[i]
        key = to_ordered(row[0])
        for j in range(row.size):
            k = to_ordered(row[j])
            key = k if k > key else key
        top, total = from_ordered(key), 0.0
        if not math.isfinite(top):
            for j in range(row.size):
                top = top if row[j] == row[j] else row[j]
            out[i] = top
            continue
        for start in range(0, row.size, _BLOCK):
            block, part = row[start : start + _BLOCK], number(0)
            for k in range(block.size):
                part += exp_of_negative(block[k] - top)
            total += part
        out[i] = top + number(math.log(total))


@shared("x", "out")
@kernel
def _norms(x, out):
    number = out.dtype.type
    for i in range(x.shape[0]):
        total = 0.0
        for start in range(0, x.shape[1], _BLOCK):
            block = x[i, start : start + _BLOCK]
            part = number(0)
            for k in range(block.size):
                part += block[k] * block[k]
            total += part
        out[i] = number(math.sqrt(total))


@kernel
def _sum_rows(x, out, first, end):
    """Sum x (a, b, c) over a and c to out (b,), from `first` to `end`."""
    outer, _, inner = x.shape
    number = out.dtype.type
    totals = np.zeros(out.size, np.float64)
    for i in range(outer):
        for j in range(first, end):
            row = x[i, j]
            for start in range(0, inner, _BLOCK):
                # A loop from 0 over a slice: only then are its indices known not to be negative, and it vectorised.
                block = row[start : start + _BLOCK]
                part = number(0)
                for k in range(block.size):
                    part += widened(block[k])
                totals[j] += part
    for j in range(first, end):
        out[j] = number(totals[j])


@kernel
def _sum_columns(x, out, begin, end):
    """Sum x (a, b) over a to out (b,), from `begin` to `end`."""
    rows, columns = x.shape[0], end - begin
    number = out.dtype.type
    totals = np.zeros(columns, np.float64)
    part = np.empty(columns, out.dtype)
    for first in range(0, rows, _BLOCK):
        stop = min(first + _BLOCK, rows)
        # Four rows at a time, for the partial sums are read and written each time.
        fours = first + (stop - first) // 4 * 4
        for j in range(columns):
            part[j] = number(0)
        for i in range(first, fours, 4):
            p, q, r, s = x[i, begin:], x[i + 1, begin:], x[i + 2, begin:], x[i + 3, begin:]
            for j in range(columns):
                part[j] += widened(p[j]) + widened(q[j]) + widened(r[j]) + widened(s[j])
        for i in range(fours, stop):
            p = x[i, begin:]
            for j in range(columns):
                part[j] += widened(p[j])
        for j in range(columns):
            totals[j] += part[j]
    for j in range(columns):
        out[begin + j] = number(totals[j])
