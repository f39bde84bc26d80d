"""Cross entropy of a linear layer's scores, which are made in chunks so that they never lie in memory all at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from ... import Tensor, cat, stack, where
from ...backend.dtype import DType, float32, int64
from ...core.errors import warn_program
from ...ops.linalg.matrix import linear
from ...utils.checkpoint import checkpoint
from .classification import cross_entropy

_POLICIES = ("auto", "accurate", "balanced", "compact")


@dataclass(frozen=True, slots=True)
class LinearCrossEntropyOptions:
    """How `linear_cross_entropy` divides its work.

    batch_chunk_size: rows at a time; all by default. chunking_method: "aspect_ratio" chooses rows so that their scores take the
    memory of the input, "aspect_ratio:N" an Nth of it; "auto" is "aspect_ratio:2"; None is for `batch_chunk_size` alone.
    allow_retain_graph, acc_policy, acc_dtype: PyTorch's; here scores are made again in backward, which may be repeated, and
    products of 16-bit numbers are always added up in float32.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: Literal["accurate", "balanced", "compact", "auto"] = "auto"
    acc_dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.acc_policy not in _POLICIES:
            raise ValueError(
                f"invalid acc_policy: {self.acc_policy!r}, expected one of {', '.join(_POLICIES)}"
            )
        if self.batch_chunk_size is not None and self.batch_chunk_size < 1:
            raise ValueError(f"batch_chunk_size must be positive int or None, got {self.batch_chunk_size}")
        if self.chunking_method not in (None, "auto"):
            name, _, share = str(self.chunking_method).partition(":")
            if name != "aspect_ratio" or not (share or "1").isdigit() or int(share or 1) < 1:
                raise ValueError(
                    f"invalid chunking_method: {self.chunking_method!r}, expected 'auto', 'aspect_ratio', 'aspect_ratio:N'"
                )

    def rows(self, batch: int, features: int, classes: int) -> int:
        """How many rows of a batch to take at a time."""
        given, method = self.batch_chunk_size, self.chunking_method
        if method is None or (given is not None and method == "auto"):
            return given or max(batch, 1)
        share = int(method.partition(":")[2] or (2 if method == "auto" else 1))
        rows = math.ceil(batch / max(1, math.ceil(classes / max(features, 1))))
        found = max(1, 2 ** max(rows - 1, 0).bit_length() // share)
        if given not in (None, found):
            raise ValueError(
                f"batch_chunk_size (={given}) and chunking_method ({method!r}) give different chunk sizes ({given} vs {found}); "
                "pass only one."
            )
        return found


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """`cross_entropy` of the scores `input` @ `linear_weight`.T + `linear_bias`.

    input: (in,) or (N, in). linear_weight: (C, in), or (C, d1, …, in) for scores (N, C, d1, …). linear_bias: (C, d1, …).
    target, weight, reduction, label_smoothing: those of `cross_entropy`. ignore_index: None is -100.
    options: with them, scores (N, C) of class indices are made in chunks, once more in backward; their memory is that of one chunk.
    """
    _check(input, linear_weight, linear_bias)
    classes, *more = linear_weight.shape[:-1]
    batch = tuple(input.shape[:-1])
    scores = (*batch, classes, *more)
    if tuple(target.shape) == scores and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    ignored = -100 if ignore_index is None else ignore_index
    common: dict[str, Any] = {"weight": weight, "ignore_index": ignored}
    if options is not None:
        known = reduction in ("mean", "sum", "none")
        if batch and known and not more and not label_smoothing and target.dtype is int64:
            return _in_chunks(input, linear_weight, linear_bias, target, reduction, options, common)
        if batch:
            warn_program(
                "linear_cross_entropy: ``options`` ignored; chunked path needs reduction in {'mean','sum','none'}, "
                "label_smoothing == 0, target.dtype == int64, out_features == (). Got "
                f"reduction={reduction!r}, label_smoothing={label_smoothing}, target.dtype={target.dtype!r}, "
                f"out_features={tuple(more)}"
            )
    flat = linear(
        input,
        linear_weight.reshape(-1, input.shape[-1]),
        None if linear_bias is None else linear_bias.reshape(-1),
    )
    return cross_entropy(
        flat.reshape(scores), target, reduction=reduction, label_smoothing=label_smoothing, **common
    )


def _check(input: Tensor, linear_weight: Tensor, linear_bias: Tensor | None) -> None:
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}")
    if input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {linear_weight.shape[-1]}, respectively"
        )
    expected = tuple(linear_weight.shape[:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != expected:
        raise RuntimeError(f"expected linear_bias shape {expected}, got {tuple(linear_bias.shape)}")
    if len(expected) > 1 and input.ndim == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {input.shape[0]}), got unbatched input with shape {tuple(input.shape)}"
        )


def _in_chunks(
    input: Tensor,
    linear_weight: Tensor,
    linear_bias: Tensor | None,
    target: Tensor,
    reduction: str,
    options: LinearCrossEntropyOptions,
    common: dict[str, Any],
) -> Tensor:
    rows = options.rows(len(input), input.shape[1], len(linear_weight))
    ignored, weight = common["ignore_index"], common["weight"]
    half = reduction != "none" and input.dtype.itemsize == 2
    if half and weight is not None:
        common = {**common, "weight": weight.to(float32)}

    def losses(part: Tensor, classes: Tensor) -> Tensor:
        scores = linear(part, linear_weight, linear_bias)
        each = "none" if reduction == "none" else "sum"
        return cross_entropy(scores.to(float32) if half else scores, classes, reduction=each, **common)

    parts = [
        checkpoint(losses, *part, use_reentrant=False, preserve_rng_state=False)
        for part in zip(input.split(rows), target.split(rows), strict=True)
    ]
    if reduction == "none":
        return cat(parts)
    total = stack(parts).sum()
    if reduction == "mean":
        counts = target != ignored
        share = counts if weight is None else common["weight"][where(counts, target, 0)] * counts
        total = total / share.sum()
    return total.to(input.dtype)
