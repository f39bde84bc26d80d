"""Cross entropy over class indices in CUDA kernels: no array of probabilities is made."""

from __future__ import annotations

from typing import Any

import cupy  # pyright: ignore[reportMissingImports]

from .source import WARP, accumulator, computes, contiguous, elementwise

Array = Any

# One warp per row. A target that is no class gives NaN: a kernel cannot raise.
_losses = elementwise(
    "raw T input, raw int64 target, int64 columns, int64 ignored, float64 smoothing",
    "raw A losses, raw A sums",
    """
    const long long row = i / 32, wanted = target[row];
    const T* x = &input[row * columns];
    A top = (A)x[0];
    for (long long j = i % 32; j < columns; j += 32) top = larger(top, (A)x[j]);
    top = warp_max(top);
    A total = 0, distance = 0;
    for (long long j = i % 32; j < columns; j += 32) {
      const A v = (A)x[j] - top;
      total += exp(v);
      distance += v;
    }
    const A log_total = log(warp_sum(total));
    distance = warp_sum(distance);
    if (i % 32 == 0) {
      sums[2 * row] = top;
      sums[2 * row + 1] = log_total;
      if (wanted == ignored) {
        losses[row] = 0;
      } else if (wanted < 0 || wanted >= columns) {
        losses[row] = (A)nan("");
      } else {
        const A loss = log_total - ((A)x[wanted] - top), uniform = log_total - distance / (A)columns;
        losses[row] = smoothing > 0 ? (A)(1 - smoothing) * loss + (A)smoothing * uniform : loss;
      }
    }
    """,
    "cross_entropy",
)

# One thread per element; `step` is 0 where one number scales all rows.
_grad_input = elementwise(
    "raw T input, raw int64 target, raw A sums, raw A scale, int64 step, int64 columns, int64 ignored, float64 smoothing",
    "raw T grad",
    """
    const long long row = i / columns, column = i % columns, wanted = target[row];
    if (wanted == ignored) {
      grad[i] = (T)(A)0;
    } else {
      const A share = (A)(smoothing / columns) + (column == wanted ? (A)(1 - smoothing) : (A)0);
      grad[i] = (T)(scale[row * step] * (exp(((A)input[i] - sums[2 * row]) - sums[2 * row + 1]) - share));
    }
    """,
    "cross_entropy_backward",
)


def cross_entropy_rows(
    input: Array,
    target: Array,
    weight: Array | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
) -> tuple[Array, Array]:
    """-log softmax(input)[target], input (N, C), target int64 (N,): (loss, sums (N, 2)).

    `sums` are of each row the largest element and log(sum(exp(x - that))).

    The loss is NaN where a target is outside of [0, C), and for the mean over no targets.
    `NotImplemented` with class weights.
    """
    if weight is not None or not computes(input):
        return NotImplemented
    rows, columns = input.shape
    losses, sums = (cupy.empty(shape, accumulator(input.dtype)) for shape in (rows, (rows, 2)))
    _losses(
        contiguous(input),
        contiguous(target),
        columns,
        ignore_index,
        label_smoothing,
        losses,
        sums,
        size=rows * WARP,
    )
    if reduction == "mean":
        losses = losses.sum() / _kept(target, ignore_index, losses.dtype)
    elif reduction == "sum":
        losses = losses.sum()
    return losses.astype(input.dtype, copy=False), sums


def cross_entropy_backward(
    g: Array,
    input: Array,
    target: Array,
    weight: Array | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
    sums: Array | None,
) -> Array:
    """The gradient of `cross_entropy_rows` for input (N, C); g has the shape of the loss."""
    if weight is not None or sums is None or not computes(input, g):
        return NotImplemented
    scale = g.astype(sums.dtype, copy=False)
    if reduction == "mean":
        scale = scale / _kept(target, ignore_index, sums.dtype)
    grad = cupy.empty(input.shape, input.dtype)
    _grad_input(
        contiguous(input),
        contiguous(target),
        sums,
        contiguous(scale.reshape(-1)),
        0 if reduction != "none" else 1,
        input.shape[1],
        ignore_index,
        label_smoothing,
        grad,
        size=input.size,
    )
    return grad


def _kept(target: Array, ignore_index: int, dtype: Any) -> Array:
    """How many targets count, without waiting for the GPU, in the type of the losses."""
    return _count(target, ignore_index, cupy.empty((), dtype))


_count = cupy.ReductionKernel(
    "int64 target, int64 ignored", "A count", "(long long)(target != ignored)", "a + b", "count = (A)a", "0",
    "ddpgrad_count_targets", reduce_type="long long",
)  # fmt: skip
