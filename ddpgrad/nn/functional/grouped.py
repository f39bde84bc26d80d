"""Products of groups of rows, as the experts of a mixture take them."""

from __future__ import annotations

from itertools import pairwise

from ...backend.dtype import DType, bfloat16, float16, float32, int32
from ...core.overrides import overridable
from ...core.tensor import Tensor
from ...ops.linalg.matrix import matmul
from ...ops.shape.stacking import cat


@overridable
def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: DType | None = None
) -> Tensor:  # fmt: skip
    """The products of groups, each with a matrix of its own.

    offs: where each group ends (int32), among the rows of `mat_a` where `mat_b` has a matrix for each group, the columns of
    `mat_b` where `mat_a` has, and along what is summed over where neither has. Without it both have. What lies after the
    last group is zeros.
    """
    _check(mat_a, mat_b, offs, bias, out_dtype)
    if offs is None:
        return matmul(mat_a, mat_b)
    ends = offs.tolist()
    along = (
        mat_b.shape[1] if mat_b.ndim == 2 and mat_a.ndim == 3 else mat_a.shape[0 if mat_b.ndim == 3 else 1]
    )
    if sorted(ends) != ends or (ends and (ends[0] < 0 or ends[-1] > along)):
        raise ValueError(f"grouped_mm: offs must not decrease, from 0 to at most {along}, got {ends}")
    groups = list(enumerate(pairwise([0, *ends])))
    if mat_a.ndim == 2 and mat_b.ndim == 2:
        parts = [matmul(mat_a[:, start:end], mat_b[start:end]).unsqueeze(0) for _, (start, end) in groups]
        return cat(parts, 0)
    rest = along - (ends[-1] if ends else 0)
    if mat_b.ndim == 3:
        parts = [matmul(mat_a[start:end], mat_b[k]) for k, (start, end) in groups]
        return cat([*parts, mat_a.new_zeros(rest, mat_b.shape[2])], 0)
    parts = [matmul(mat_a[k], mat_b[:, start:end]) for k, (start, end) in groups]
    return cat([*parts, mat_a.new_zeros(mat_a.shape[1], rest)], 1)


def _check(a: Tensor, b: Tensor, offs: Tensor | None, bias: Tensor | None, out_dtype: DType | None) -> None:
    """PyTorch's errors."""
    for name, x in (("mat_a", a), ("mat_b", b)):
        if x.dtype not in (float32, bfloat16, float16):
            raise RuntimeError(
                f"Expected {name} to be Float32, BFloat16 or Float16 matrix, got {x.dtype.name}"
            )
        if x.ndim not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {a.dtype.name} != {b.dtype.name}"
        )
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    if (offs is None) != (a.ndim == b.ndim == 3):
        raise RuntimeError(
            "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d"
        )
    if a.ndim == b.ndim == 3 and len(a) != len(b):
        raise RuntimeError("batched dimension has to match")
    if offs is not None:
        if offs.ndim != 1:
            raise RuntimeError("offs has to be 1D")
        if offs.dtype is not int32:
            raise RuntimeError("Offsets have to be int32")
        if any(x.ndim == 3 and len(x) != len(offs) for x in (a, b)):
            raise RuntimeError("matrix batch sizes have to match")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype not in (None, a.dtype):
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")
