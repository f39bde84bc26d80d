"""Looking up and adding up at indexes on the GPU; sums in a fixed order, so that a run can be repeated.

CuPy's `add.at` adds with atomics, in an order that differs from run to run, and does so for a
few types only. Here the places are sorted, and one thread adds up what comes to one place, or some threads where that is much.
"""

from __future__ import annotations

import math
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from ..device import capturing
from .source import accumulator, computes, contiguous, elementwise

Array = Any


_CHUNK = 128  # of sorted rows that one thread adds up at most
_ALONE = 1024  # rows that are one chunk, for which one launch does


# One thread per sorted row and column; those that start a run of equal places, or a chunk within one, do the work. What is of
# more chunks than one goes to `parts`: of each chunk what goes on from the last one, and what begins in it. own: what is there
# counts too.
def _combine_runs(name: str, statement: str) -> tuple[Any, Any]:
    first = elementwise(
        "raw int64 places, raw int64 order, raw T values, int64 rows, int64 count, int64 width, bool own, int64 chunk",
        "raw T out, raw A parts",
        f"""
        const long long first = i / width, column = i % width, place = places[first];
        const bool starts = first == 0 || places[first - 1] != place;
        if (place >= 0 && place < rows && (starts || first % chunk == 0)) {{
          const long long next = (first / chunk + 1) * chunk, end = next < count ? next : count;
          long long k = first;
          A total = own && starts ? (A)out[place * width + column] : (A)values[order[k++] * width + column];
          for (; k < end && places[k] == place; ++k) {{
            const A v = (A)values[order[k] * width + column];
            total = {statement};
          }}
          if (starts && (k == count || places[k] != place)) {{
            out[place * width + column] = (T)total;
          }} else {{
            parts[(first / chunk * 2 + starts) * width + column] = total;
          }}
        }}
        """,
        f"{name}_runs",
    )
    # One thread per chunk and column: the first chunk into which a run goes on adds up all parts of it.
    then = elementwise(
        "raw int64 places, raw A parts, int64 rows, int64 chunks, int64 width, int64 chunk",
        "raw T out",
        f"""
        const long long here = i / width + 1, column = i % width, start = here * chunk, place = places[start];
        const bool earlier = here > 1 && places[start - chunk] == place && places[start - chunk - 1] == place;
        if (place >= 0 && place < rows && places[start - 1] == place && !earlier) {{
          A total = parts[(2 * here - 1) * width + column];
          for (long long k = here; k < chunks && places[k * chunk] == place; ++k) {{
            const A v = parts[2 * k * width + column];
            total = {statement};
          }}
          out[place * width + column] = (T)total;
        }}
        """,
        f"{name}_parts",
    )
    return first, then


_KERNELS = {
    "sum": _combine_runs("add", "total + v"),
    "prod": _combine_runs("multiply", "total * v"),
    "amax": _combine_runs("largest", "larger(total, v)"),
    "amin": _combine_runs("least", "total < v || total != total ? total : v"),
}
_RUNS = {name: kernels[0] for name, kernels in _KERNELS.items()}
_PARTS = {name: kernels[1] for name, kernels in _KERNELS.items()}


# One thread per element of the result. An index outside of the table gives NaN: a kernel cannot raise.
_look_up = elementwise(
    "raw T table, raw int64 indices, int64 rows, int64 width",
    "raw T out",
    """
    const long long row = indices[i / width];
    out[i] = row >= 0 && row < rows ? table[row * width + i % width] : (T)(A)nan("");
    """,
    "embedding",
)


def embedding_rows(input: Array, indices: Array, padding_idx: int | None = None) -> Array:
    """Rows `indices` of the table `input` (rows, width); NaN where an index is no row."""
    if not computes(input):
        return NotImplemented
    rows, width = input.shape
    out = cupy.empty((*indices.shape, width), input.dtype)
    indices = contiguous(indices.astype(np.int64, copy=False).reshape(-1))
    _look_up(contiguous(input), indices, rows, width, out, size=out.size)
    return out


def embedding_backward(g: Array, indices: Array, num_embeddings: int, padding_idx: int | None) -> Array:
    """Rows of g (*, D) added up by index (*): (num_embeddings, D), zeros at row `padding_idx`."""
    width = g.shape[-1]
    out = _combine_rows(cupy.zeros((num_embeddings, width), g.dtype), num_embeddings, width, indices, g)
    if padding_idx is not None:
        out[padding_idx] = 0
    return out


def index_put_add(input: Array, index: Any, value: Any) -> Array:
    """`input` with `value`, broadcast, added at `index`; repeated places add up."""
    if isinstance(index, cupy.ndarray) and index.dtype.kind in "iu" and input.ndim:  # whole rows
        rows, width = input.shape[0], math.prod(input.shape[1:])
        places, shape = index % rows, (*index.shape, *input.shape[1:])
    else:
        rows, width = input.size, 1
        places = cupy.arange(input.size).reshape(input.shape)[index]
        shape = places.shape
    values = cupy.broadcast_to(cupy.asarray(value, dtype=input.dtype), shape)
    return _combine_rows(cupy.array(input, copy=True, order="C"), rows, width, places, values)


def scatter_add(input: Array, dim: int, index: Array, src: Array) -> Array:
    """`input` with the elements of `src` added at the places `index` along `dim`."""
    return _scatter(input, dim, index, src, "sum", True)


def scatter_reduce_by(
    input: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool
) -> Array:
    """The product ("prod") or an extremum ("amax", "amin") of the elements of `src` that share a place along `dim`."""
    return _scatter(input, dim, index, src, reduce, include_self)


def _scatter(input: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool) -> Array:
    if input.dtype.kind == "c" and reduce != "sum":
        return NotImplemented
    if not input.ndim:
        lines = input.reshape(1), 0, index.reshape(-1), src.reshape(-1)
        return _scatter(*lines, reduce, include_self).reshape(())
    covered = tuple(slice(n) for n in index.shape)
    # The flat place of element 0 of each line along `dim`, and from there index * step.
    lines = cupy.arange(input.size).reshape(input.shape)[(*covered[:dim], slice(1), *covered[dim + 1 :])]
    step = math.prod(input.shape[dim + 1 :])
    places = lines + index % input.shape[dim] * step
    out = cupy.array(input, copy=True, order="C")
    return _combine_rows(out, input.size, 1, places, src[covered], reduce, include_self)


def _combine_rows(
    out: Array, rows: int, width: int, places: Array, values: Array, reduce: str = "sum", own: bool = True
) -> Array:
    """Combine row k of `values`, `width` elements each, with row places[k] of `out`, in place, in the order of k."""
    count = places.size
    if count and width:
        places = places.reshape(-1).astype(np.int64, copy=False)
        places, order = _sorted(places, rows)
        values, sums = contiguous(values.astype(out.dtype, copy=False)), out
        if out.dtype.kind == "c":  # real and imaginary parts are added up as two columns
            sums, values, width = sums.view(out.real.dtype), values.view(out.real.dtype), 2 * width
        chunk = count if count <= _ALONE else _CHUNK
        chunks = -(-count // chunk)
        wide = sums.dtype if sums.dtype.kind in "ib" or sums.dtype == np.uint8 else accumulator(sums.dtype)
        parts = cupy.empty((2 * chunks if chunks > 1 else 1, width), wide)
        _RUNS[reduce](places, order, values, rows, count, width, own, chunk, sums, parts, size=count * width)
        if chunks > 1:
            _PARTS[reduce](places, parts, rows, chunks, width, chunk, sums, size=(chunks - 1) * width)
    return out


def _sorted(places: Array, rows: int) -> tuple[Array, Array]:
    """Places in ascending order, and where each of them was; equal ones keep their order."""
    if capturing.now is None:
        order = cupy.argsort(places)
        return places[order], order
    # CuPy's sort waits for the GPU, which no graph can do. Each key here is a place and its number, so all differ.
    count = places.size
    keys = cupy.full(1 << (count - 1).bit_length(), np.iinfo(np.int64).max)
    keys[:count] = cupy.clip(places, -1, rows) * count + cupy.arange(count)
    for stage in (2 << k for k in range((count - 1).bit_length())):
        step = stage // 2
        while step:
            _exchange(stage, step, keys, size=keys.size)
            step //= 2
    return keys[:count] // count, keys[:count] % count


# One pass of a bitonic sort (Batcher, "Sorting networks and their applications", 1968).
_exchange = cupy.ElementwiseKernel(
    "int64 stage, int64 step",
    "raw int64 keys",
    """
    const long long other = i ^ step;
    if (other > i && (keys[i] > keys[other]) == ((i & stage) == 0)) {
      const long long kept = keys[i];
      keys[i] = keys[other];
      keys[other] = kept;
    }
    """,
    "ddpgrad_sort_pass",
)
