"""Row numbers in order, and the same compressed: where each row begins. Of libraries' own sparse matrices."""

from __future__ import annotations

from ...backend import dtype as dtypes
from ...core.tensor import Tensor
from ..creation.factories import arange
from ..reduction.histograms import bincount
from ..reduction.scan import cumsum
from ..shape.rearranging import repeat_interleave
from ..shape.shape import constant_pad
from ..shape.stacking import stack


def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Where each of `size` rows begins, and the last ends, in the row numbers `input` (N,), which ascend: (size + 1,)."""
    if input.ndim != 1:
        raise RuntimeError(f"Input is supposed to be a vector, but got {input.ndim} dimensional tensor.")
    ends = cumsum(bincount(input, minlength=size), 0)
    return constant_pad(ends, [(1, 0)], 0).to(dtypes.int32 if out_int32 else dtypes.int64)


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """(2, N): the row numbers that `crow_indices` stand for, over `col_indices`; with transpose, under them."""
    rows = repeat_interleave(arange(len(crow_indices) - 1, device=crow_indices.device), crow_indices.diff())
    pair = [rows.to(dtypes.int32 if out_int32 else dtypes.int64)]
    pair.insert(0 if transpose else 1, col_indices.to(pair[0].dtype))
    return stack(pair)
