"""Reductions of segments: elements that follow one another, given by how many there are or where each begins."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..creation.factories import from_numpy
from ..dispatch.dtype_lists import refuse_dtypes
from ..dispatch.tensor_function import tensor_function
from ..elementwise import binary
from ..reduction.reduce import wrap_dim
from ..shape import shape
from .gather import index_select
from .put import index_add
from .scatter import scatter_reduce

_STARTS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -float("inf"), "min": float("inf")}
_NAMES = {"amax": "max", "amin": "min"}


@tensor_function(method=False, aliases=("_segment_reduce",))
def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: Any = None,
) -> Tensor:  # fmt: skip
    """The sum, mean, max, min or prod of each segment along `axis`.

    lengths: of the segments (..., n), for each of the dimensions before `axis`; or offsets (..., n + 1), where each
    begins, and the last ends. unsafe: lengths are not checked. initial: what is reduced with each, and what an empty
    one has; else that is NaN of a mean, and the neutral element of others.
    """
    kind = _NAMES.get(reduce, reduce)
    if kind not in _STARTS:
        raise RuntimeError(f"reduce argument must be one of {', '.join(_STARTS)}, got {reduce}")
    refuse_dtypes("segment_reduce", "bic", (data,))
    if not data.ndim:
        raise RuntimeError("segment_reduce(): expected data with a dimension to reduce, got a single number")
    axis = wrap_dim("segment_reduce", axis, data.ndim)
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    given = lengths if offsets is None else offsets
    if given is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if given.ndim != axis + 1:
        raise RuntimeError(
            f"segment_reduce(): Expected axis to be the last dimension of lengths but got {axis}."
        )
    counts = Tensor.numpy(given, force=True)
    if counts.dtype.kind != "i":
        raise NotImplementedError(f"segment_reduce(): not implemented for lengths of {counts.dtype}")
    size = data.shape[axis]
    if offsets is not None:
        begins, counts = counts[..., 0], np.diff(counts)
    else:
        begins = np.zeros(counts.shape[:-1], np.int64)
        if not unsafe and (counts < 0).any():
            raise RuntimeError("lengths contains negative value!")
        if not unsafe and (counts.sum(-1) != size).any():
            raise RuntimeError(
                "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when "
                "!unsafe."
            )
    rest = data.shape[axis + 1 :]
    rows = data.reshape(-1, *rest) if axis else data
    places = _places(begins.reshape(-1), counts.sum(-1).reshape(-1), size)
    if len(places) != rows.shape[0]:
        rows = index_select(rows, 0, from_numpy(places).to(data.device))
    owners = from_numpy(np.repeat(np.arange(counts.size), counts.reshape(-1))).to(data.device)
    start = data.new_full((counts.size, *rest), _STARTS[kind] if initial is None else initial)
    reduced = _reduced(kind, start, owners, rows)
    if kind == "mean":
        total = from_numpy(counts.reshape(-1, *[1] * len(rest)).copy()).to(data.device)
        mean = reduced / total.clamp(min=1)
        reduced = binary.where(total > 0, mean, start if initial is not None else start / 0)
    return reduced.reshape(*counts.shape, *rest) if axis else reduced


def _places(begins: np.ndarray, totals: np.ndarray, size: int) -> np.ndarray:
    """The rows of all segments, one after the other; those of one begin where those before it end."""
    parts = [
        np.arange(row * size + first, row * size + first + total)
        for row, (first, total) in enumerate(zip(begins, totals, strict=True))
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _reduced(kind: str, start: Tensor, owners: Tensor, rows: Tensor) -> Tensor:
    if kind in ("sum", "mean"):
        return index_add(start, 0, owners, rows)
    index = shape.expand(owners.reshape(-1, *[1] * (rows.ndim - 1)), rows.shape)
    return scatter_reduce(start, 0, index, rows, kind)
