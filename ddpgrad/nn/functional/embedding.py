"""Embedding lookups by index, one row each or summed in bags, and one-hot vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...autograd.function import Function
from ...autograd.grad_mode import is_grad_enabled, no_grad
from ...backend import dtype as dtypes
from ...core.dispatching import telling
from ...core.errors import warn_program
from ...core.modes import exporting
from ...core.tensor import Tensor
from ...ops.creation.factories import arange, from_numpy, zeros
from ...ops.elementwise.binary import where
from ...ops.elementwise.unary import clone
from ...ops.indexing.gather import index_select
from ...ops.layers.embedding import bag_sums, embedding_backward, embedding_rows
from ...ops.reduction.norm import norm
from ...ops.shape.shape import narrow, reshape

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
            raise AssertionError(
                f"Padding_idx must be within num_embeddings={weight.shape[0]}, got {padding_idx}"
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

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return tangents[0]


def _scaled(rows: Tensor, indices: Tensor, weight: Tensor, sparse: bool) -> Tensor:
    """`rows`, whose gradient is divided by how often `indices` has each."""
    if sparse and rows.requires_grad:
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
            used = from_numpy(np.unique(Tensor.numpy(indices, force=True))).to(weight.device)
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
    if weight.dtype is dtypes.int64 and input.is_floating_point():
        warn_program(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is "
            "deprecated, and should now be `embedding_bag(input, weight, ...)`."
        )
        weight, input = input, weight
    flat, bounds = _bags(input, weight, offsets, include_last_offset, per_sample_weights)
    _check_mode(mode, scale_grad_by_freq, sparse, per_sample_weights)
    bags = len(bounds) - 1
    if padding_idx is not None:
        count = weight.shape[0]
        if not -count <= padding_idx < count:
            raise RuntimeError(
                f"padding_idx must be within the number of embeddings, {-count} through {count - 1}, but got {padding_idx}"
            )
        padding_idx %= count
    equal = input.ndim == 2 and input.shape[1] > 0
    indices = input if equal else flat
    if mode != "max" and not (sparse or scale_grad_by_freq) and max_norm is None and _plain(weight, flat):
        return _sums(weight, flat, bounds, per_sample_weights, padding_idx, mode)
    try:
        rows = _rows(weight, indices, padding_idx, max_norm, norm_type, sparse)
    except IndexError as error:
        raise _outside(Tensor.numpy(flat, force=True), weight.shape[0]) from error
    if scale_grad_by_freq:
        rows = _scaled(rows, indices, weight, sparse)
    if equal:
        return _of_equal_bags(rows, input, mode, per_sample_weights, padding_idx)
    owner = np.repeat(np.arange(bags), np.diff(bounds))
    counted = np.ones(len(owner), bool)
    if padding_idx is not None and not flat.is_meta:
        counted = Tensor.numpy(flat, force=True) != padding_idx
    if mode == "max":
        return _largest(rows, owner, counted, bags)
    counts = np.bincount(owner[counted], minlength=bags)
    if per_sample_weights is not None:
        rows = rows * reshape(narrow(per_sample_weights, 0, 0, len(owner)), (-1, 1))
    if not counted.all():
        keep = from_numpy(np.flatnonzero(counted)).to(weight.device)
        rows, owner = index_select(rows, 0, keep), owner[counted]
    total = embedding_backward(rows, from_numpy(owner).to(weight.device), bags)
    if mode == "sum":
        return total
    share = from_numpy(np.maximum(counts, 1)[:, None]).to(weight.device, weight.dtype)
    return total / share


def _plain(weight: Tensor, indices: Tensor) -> bool:
    """Whether the sums of bags are one op: for floats on the CPU that no program follows op by op."""
    arrays = type(weight._array) is type(indices._array) is np.ndarray
    return arrays and weight.dtype in (dtypes.float32, dtypes.float64) and not (telling or exporting.get())


def _sums(
    weight: Tensor,
    flat: Tensor,
    bounds: np.ndarray[Any, Any],
    weights: Tensor | None,
    padding_idx: int | None,
    mode: str,
) -> Tensor:
    """The sums or means of bags without their rows in memory."""
    indices = flat.to(dtypes.int64)
    factors = weight.detach().new_ones(len(flat)) if weights is None else reshape(weights, (-1,))
    factors = narrow(factors, 0, 0, len(flat))
    if padding_idx is not None and not (counted := Tensor.numpy(indices, force=True) != padding_idx).all():
        bounds = np.append(0, np.cumsum(counted))[bounds]
        keep = from_numpy(np.flatnonzero(counted))
        indices, factors = index_select(indices, 0, keep), index_select(factors, 0, keep)
    try:
        total = bag_sums(weight, factors, indices, bounds)
    except IndexError as error:
        raise _outside(Tensor.numpy(flat, force=True), weight.shape[0]) from error
    if mode == "sum":
        return total
    return total / from_numpy(np.maximum(np.diff(bounds), 1)[:, None]).to(weight.dtype)


def _check_mode(mode: str, by_frequency: bool, sparse: bool, weights: Tensor | None) -> None:
    """The errors of a mode, and of what it cannot do."""
    if mode not in _MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and by_frequency:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
            f"(got mode='{mode}'). Please open a feature request on GitHub."
        )


def _outside(indices: np.ndarray[Any, Any], rows: int) -> RuntimeError:
    """The error for the first index that the table has no row for."""
    place = int(np.flatnonzero((indices < 0) | (indices >= rows))[0])
    return RuntimeError(
        f"Index {place} of input takes value {indices[place]} which is not in the valid range [0, {rows})"
    )


def _bags(
    input: Tensor, weight: Tensor, offsets: Tensor | None, include_last_offset: bool, weights: Tensor | None
) -> tuple[Tensor, np.ndarray[Any, Any]]:
    """(the indices of all bags, where each bag starts, and the last one ends), checked."""
    if weights is not None and weights.shape != input.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({weights.shape}) is not None, then it must have the same shape as "
            f"the input ({input.shape})"
        )
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    if input.ndim not in (1, 2):
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
                f"sequences. However, found offsets of type {type(offsets)}"
            )
        _check_types(input, weight, weights)
        bags, length = input.shape
        return reshape(input, (-1,)), np.arange(bags + 1) * length
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if offsets.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    _check_types(input, weight, weights)
    _check_types(offsets, weight, None)
    # Of a tensor on meta only the number is known.
    bounds = np.zeros(offsets.shape, np.int64) if offsets.is_meta else Tensor.numpy(offsets, force=True)
    length = input.numel()
    if include_last_offset and not len(bounds):
        raise RuntimeError("include_last_offset: number of offset should be at least 1")
    if len(bounds) and bounds[0] != 0:
        raise RuntimeError(
            f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
            f"However, got {bounds[0]}"
        )
    if len(bounds) and bounds[-1] > length:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {length} but got offsets[-1] of {bounds[-1]}"
        )
    if not include_last_offset:
        bounds = np.append(bounds, length if len(bounds) else 0)
    if (np.diff(bounds) < 0).any():
        raise RuntimeError(f"offsets must not decrease, got {offsets.tolist()}")
    return narrow(input, 0, 0, int(bounds[-1])), bounds


def _check_types(indices: Tensor, weight: Tensor, weights: Tensor | None) -> None:
    """The errors of dtypes, in PyTorch's words."""
    wanted = "Expected tensor for argument #1 '{}' to have one of the following scalar types: {}; but got {} instead"
    where = "(while checking arguments for embedding_bag)"
    if indices.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(f"{wanted.format('indices', 'Long, Int', indices.type())} {where}")
    if not weight.is_floating_point():
        kinds = "Half, BFloat16, Float, Double"
        raise RuntimeError(f"{wanted.format('weight', kinds, weight.type())} {where}")
    if weights is not None and weights.dtype is not weight.dtype:
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 "
            f"'per_sample_weights'; but type {weight.type()} does not equal {weights.type()} {where}"
        )


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


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """int64 (*, num_classes): 1 at the index that `input` (*) holds, 0 elsewhere; -1: as many as occur."""
    if input.dtype is not dtypes.int64:
        raise RuntimeError(
            f"one_hot is only applicable to index tensor of type LongTensor, int64, got {input.dtype!r}"
        )
    if num_classes <= 0 and not input.numel():
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if num_classes < -1:
        raise RuntimeError(f"one_hot(): num_classes must be -1 or positive, got {num_classes}")
    if num_classes == -1:
        num_classes = int(input.max()) + 1
    if input.numel() and input.is_cpu:
        try:
            out = zeros(*input.shape, num_classes, dtype=dtypes.int64, device=input.device)
            return out.scatter_(-1, input.unsqueeze(-1), 1)
        except RuntimeError as error:
            low, high = int(input.min()), int(input.max())
            if low < 0:
                raise RuntimeError(f"Class values must be non-negative, got {low}") from error
            if high >= num_classes:
                raise RuntimeError(
                    f"Class values must be smaller than num_classes={num_classes}, got {high}"
                ) from error
            raise
    return (input.unsqueeze(-1) == arange(num_classes, device=input.device)).to(dtypes.int64)
