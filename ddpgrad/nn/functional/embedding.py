"""Embedding lookups by index, one row each or summed in bags, and one-hot vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...autograd.function import Function
from ...autograd.grad_mode import is_grad_enabled, no_grad
from ...backend import dtype as dtypes
from ...core.tensor import Tensor
from ...ops.creation.factories import arange, from_numpy
from ...ops.dispatch.watching import exporting
from ...ops.elementwise.binary import where
from ...ops.elementwise.unary import clone
from ...ops.indexing.gather import index_select
from ...ops.layers.embedding import embedding_backward, embedding_rows
from ...ops.reduction.norm import norm
from ...ops.shape.shape import reshape

_MODES = ("sum", "mean", "max")


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows `input` (*) of the table `weight` (rows, width).

    padding_idx: a row that gets no gradient. max_norm: rows that are looked up are first
    shortened to this `norm_type`-norm, in place. scale_grad_by_freq: a row's gradient is
    divided by how often `input` names it. sparse: the gradient of `weight` is a sparse tensor of the rows
    that were looked up, which SGD, Adagrad and SparseAdam take.
    """
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, got shape {list(weight.shape)}")
    if padding_idx is not None:
        if not -weight.shape[0] <= padding_idx < weight.shape[0]:
            raise ValueError(
                f"padding_idx must be within num_embeddings={weight.shape[0]}, got {padding_idx}"
            )
        padding_idx %= weight.shape[0]
    rows = _rows(weight, input, padding_idx, max_norm, norm_type, sparse)
    return _scaled(rows, input, weight, sparse) if scale_grad_by_freq else rows


class _ScaleGradient(Function):
    """The input itself, whose gradient is multiplied by a constant."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(scale)
        return clone(input)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (scale,) = ctx.saved_tensors
        return grad * scale, None


def _scaled(rows: Tensor, indices: Tensor, weight: Tensor, sparse: bool) -> Tensor:
    """`rows`, whose gradient is divided by how often `indices` has each."""
    if sparse:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    return _ScaleGradient.apply(rows, _rarity(indices, weight))


def _rarity(indices: Tensor, weight: Tensor) -> Tensor:
    """1 / how often each index occurs in `indices`, shaped to multiply the rows (*, width)."""
    ones = weight.detach().new_ones((indices.numel(), 1))
    flat = reshape(indices, (-1,))
    counts = embedding_backward(ones, flat, weight.shape[0])
    return reshape(1 / embedding_rows(counts, flat), (*indices.shape, 1))


def _rows(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int | None,
    max_norm: float | None,
    norm_type: float,
    sparse: bool,
) -> Tensor:
    """The rows of the table, which are shortened there first if there is a `max_norm`."""
    if max_norm is not None and exporting.get():  # what is written down changes no parameters
        rows = embedding_rows(weight, indices, padding_idx)
        return rows * _factors(rows, max_norm, norm_type)
    if max_norm is not None:
        with no_grad():
            used = from_numpy(np.unique(indices.numpy(force=True))).to(weight.device)
            rows = index_select(weight, 0, used)
            weight[used] = rows * _factors(rows, max_norm, norm_type)
    if sparse and weight.requires_grad and is_grad_enabled():
        from ...sparse.autograd import SparseRows  # here, as few tables have sparse gradients

        return SparseRows.apply(weight, indices, padding_idx)
    return embedding_rows(weight, indices, padding_idx)


def _factors(rows: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """What shortens each row (*, width) to `max_norm`: (*, 1)."""
    lengths = norm(rows, norm_type, -1, True)
    return where(lengths > max_norm, max_norm / (lengths + 1e-7), lengths * 0 + 1)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum (`mode`) of the rows of `weight` in each bag: (bags, width).

    input: (bags, indices of a bag), or all indices (L,) with `offsets` (bags,), where each bag
    starts. per_sample_weights: factors of the rows, of input's shape, with mode "sum".
    include_last_offset: `offsets` ends with L. padding_idx: rows that do not count. sparse: see `embedding`.
    """
    if mode not in _MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max":
        if scale_grad_by_freq:
            raise ValueError("max mode does not support scaling the gradient by the frequency")
        if sparse:
            raise ValueError("max mode does not support sparse weights")
    if per_sample_weights is not None:
        if mode != "sum":
            raise NotImplementedError(
                "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
                f"(got mode='{mode}'). Please open a feature request on GitHub."
            )
        if per_sample_weights.shape != input.shape:
            raise ValueError(
                f"embedding_bag: If per_sample_weights ({list(per_sample_weights.shape)}) is not None, then it must "
                f"have the same shape as the input ({list(input.shape)})"
            )
    flat, starts, bags = _bags(input, offsets, include_last_offset)
    if padding_idx is not None:
        padding_idx %= weight.shape[0]
    equal = input.ndim == 2 and input.shape[1] > 0
    rows = _rows(weight, input if equal else flat, padding_idx, max_norm, norm_type, sparse)
    if scale_grad_by_freq:
        rows = _scaled(rows, input if equal else flat, weight, sparse)
    if equal:
        return _of_equal_bags(rows, input, mode, per_sample_weights, padding_idx)
    owner = np.repeat(np.arange(bags), np.diff(np.append(starts, flat.numel())))
    counted = np.ones(len(owner), bool)
    if padding_idx is not None and not flat.is_meta:
        counted = flat.numpy(force=True) != padding_idx
    if mode == "max":
        return _largest(rows, owner, counted, bags)
    counts = np.bincount(owner[counted], minlength=bags)
    if per_sample_weights is not None:
        rows = rows * reshape(per_sample_weights, (-1, 1))
    if not counted.all():
        keep = from_numpy(np.flatnonzero(counted)).to(weight.device)
        rows, owner = index_select(rows, 0, keep), owner[counted]
    total = embedding_backward(rows, from_numpy(owner).to(weight.device), bags)
    if mode == "sum":
        return total
    share = from_numpy(np.maximum(counts, 1)[:, None]).to(weight.device, weight.dtype)
    return total / share


def _bags(
    input: Tensor, offsets: Tensor | None, include_last_offset: bool
) -> tuple[Tensor, np.ndarray[Any, Any], int]:
    """(indices of all bags, where each bag starts, number of bags)."""
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
                "sequences. However, found offsets of type Tensor"
            )
        bags, length = input.shape
        return reshape(input, (-1,)), np.arange(bags) * length, bags
    if input.ndim != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if offsets.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    # Of a tensor on meta only the number is known.
    starts = np.zeros(offsets.shape, np.int64) if offsets.is_meta else offsets.numpy(force=True)
    if include_last_offset:
        starts = starts[:-1]
    if len(starts) and starts[0] != 0:
        raise ValueError(
            f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
            f"However, got {starts[0]}"
        )
    if len(starts) and starts[-1] > input.numel():
        raise ValueError(
            f"offsets[-1] can not be greater than input's length ({input.numel()}), but got offsets[-1] of {starts[-1]}"
        )
    return input, starts, len(starts)


def _of_equal_bags(
    rows: Tensor, indices: Tensor, mode: str, weights: Tensor | None, padding_idx: int | None
) -> Tensor:
    """The bags of a matrix of indices, whose rows are (bags, length, width)."""
    if weights is not None:
        rows = rows * weights.unsqueeze(-1)
    if padding_idx is None:
        return rows.max(1).values if mode == "max" else rows.mean(1) if mode == "mean" else rows.sum(1)
    padding = indices.eq(padding_idx).unsqueeze(-1)
    if mode == "max":
        values = rows.masked_fill(padding, float("-inf")).max(1).values
        return values.masked_fill(padding.all(1), 0.0)
    total = rows.masked_fill(padding, 0.0).sum(1)
    return total if mode == "sum" else total / (~padding).sum(1).clamp(min=1).to(total.dtype)


def _largest(rows: Tensor, owner: np.ndarray[Any, Any], counted: np.ndarray[Any, Any], bags: int) -> Tensor:
    """The largest element of each column in each bag; 0 for an empty bag."""
    places = np.flatnonzero(counted)
    owner = owner[places]
    sizes = np.bincount(owner, minlength=bags)
    table = np.full((bags, max(int(sizes.max(initial=0)), 1)), -1)
    table[owner, np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]] = places
    picked = from_numpy(np.maximum(table, 0)).to(rows.device)
    absent = from_numpy(table < 0).to(rows.device).unsqueeze(-1)
    if not len(places):
        return rows.new_zeros((bags, rows.shape[1]))
    values = embedding_rows(rows, picked).masked_fill(absent, float("-inf")).max(1).values
    empty = from_numpy(sizes[:, None] == 0).to(rows.device)
    return values.masked_fill(empty, 0.0)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 (*, num_classes): 1 at the index that `tensor` (*) holds, 0 elsewhere; -1: as many as occur."""
    if tensor.dtype is not dtypes.int64:
        raise RuntimeError(f"one_hot is only applicable to index tensor of type int64, got {tensor.dtype!r}")
    if num_classes < 0:
        if not tensor.numel():
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        num_classes = int(tensor.max()) + 1
    if tensor.numel() and tensor.is_cpu:
        low, high = int(tensor.min()), int(tensor.max())
        if low < 0 or high >= num_classes:
            raise RuntimeError(f"Class values must be in [0, {num_classes}), got values from {low} to {high}")
    return (tensor.unsqueeze(-1) == arange(num_classes, device=tensor.device)).to(dtypes.int64)
