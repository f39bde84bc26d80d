"""Functions of `torch` that take other arguments than those of `torch.nn.functional` of the same name."""

from __future__ import annotations

from typing import Any

from ...backend.dtype import float64, int8, int32, int64, uint8
from ...core.overrides import overridable
from ...core.tensor import Tensor
from ...ops.creation.factories import arange
from ...ops.dispatch.vocabulary import VOCABULARY
from ...ops.layers.dropout import dropout as with_flags
from ...ops.reduction.counting import searchsorted
from ...ops.shape.stacking import cat
from .. import functional as F
from . import dropouts, normalization
from .embedding import embedding as of_rows
from .embedding import embedding_bag as of_bags
from .reduction import named, reduced


@overridable
def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.dropout`, without defaults."""
    return with_flags(input, p, train)


@overridable
def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.alpha_dropout`, without defaults."""
    return dropouts.alpha_dropout(input, p, train)


@overridable
def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.feature_alpha_dropout`, without defaults."""
    return dropouts.feature_alpha_dropout(input, p, train)


@overridable
def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout of whole channels (dimension 1)."""
    return dropouts.channels(input, p, train, False, -1)


@overridable
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """`nn.functional.embedding`, with the table first; a negative `padding_idx` is none."""
    padding = padding_idx if padding_idx >= 0 else None
    return of_rows(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


@overridable
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(`nn.functional.embedding_bag`, the bag of each index, how many indices each bag has, and its largest's index).

    The table comes first. mode: 0 sum, 1 mean, 2 max. The last is (bags, width) in mode 2, and the third in the others.
    """
    if mode not in (0, 1, 2):
        raise RuntimeError("`mode` must be sum, mean, or max.")
    out = of_bags(
        indices, weight, offsets, None, 2.0, scale_grad_by_freq, ("sum", "mean", "max")[mode], sparse,
        per_sample_weights, include_last_offset, padding_idx,
    )  # fmt: skip
    place = arange(len(indices), device=indices.device)
    owner = searchsorted(offsets[: len(out)].contiguous(), place, right=True) - 1
    counted = indices.ne(-1 if padding_idx is None else padding_idx % len(weight))
    sizes = owner.new_zeros(len(out)).index_add(0, owner, counted.to(int64))
    if mode != 2:
        return out, owner, sizes, sizes
    # Where in `indices` the first row with the largest element is; behind the end in an empty bag.
    largest = (weight.detach()[indices] == out.detach()[owner]) & counted[:, None]
    before = place[:, None].where(largest, len(indices))
    first = before.new_full(out.shape, len(indices)).index_reduce(0, owner, before, "amin")
    return out, owner, sizes, cat([indices, indices.new_zeros(1)])[first]


@overridable
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """`nn.functional.conv1d` of (T, N, channels) with weights (width, channels, channels of the result)."""
    out = F.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return out.permute(2, 0, 1)


@overridable
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The `pow`-norm over all dimensions but `dim`, which are kept with length 1; of everything for -1."""
    if dim == -1:
        return v.norm(pow)
    if not -v.ndim <= dim < v.ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [-{v.ndim}, {v.ndim - 1}], but got {dim})"
        )
    rest = tuple(i for i in range(v.ndim) if i != dim % v.ndim)
    return v.norm(pow, rest, True) if rest else v.abs()


@overridable
def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """`v`, brought to the lengths `g` along `dim`."""
    return v * (g / norm_except_dim(v, 2, dim))


@overridable
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """`nn.functional.batch_norm`. cudnn_enabled: accepted for PyTorch's sake."""
    return normalization.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@overridable
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """`nn.functional.instance_norm`. cudnn_enabled: accepted for PyTorch's sake."""
    return normalization.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


@overridable
def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """`nn.functional.layer_norm`. cudnn_enable: accepted for PyTorch's sake."""
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


@overridable
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """`nn.functional.group_norm`. cudnn_enabled: accepted for PyTorch's sake."""
    return F.group_norm(input, num_groups, weight, bias, eps)


@overridable
def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """The gradient of softmax from what it returned; older models of transformers ask for it."""
    return VOCABULARY.softmax_backward(grad_output, output, dim).to(input_dtype)


@overridable
def _int_mm(self: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of two int8 matrices in int32, of which quantized layers of libraries are made."""
    for name, x, dtypes in (("self", self, (int8, uint8)), ("mat2", mat2, (int8,))):
        if x.ndim != 2:
            raise RuntimeError(f"_int_mm: Expected {name} to be of dimension 2 but got {x.ndim}")
        if x.dtype not in dtypes:
            raise RuntimeError(
                f"_int_mm: Expected {name} dtype to be {' or '.join(d.name for d in dtypes)} but got {x.dtype.name}"
            )
    if self.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"_int_mm: self.size(1) needs to match mat2.size(0) but got {self.shape[1]} and {mat2.shape[0]}"
        )
    # A sum of products of bytes is exact in float64, for which there are fast products.
    result = (self.to(float64) @ mat2.to(float64)).to(int64).to(int32)
    if out is None:
        return result
    if out.dtype is not int32:
        raise RuntimeError(f"_int_mm: Expected result dtype to be of type int32 but got {out.dtype.name}")
    return out.resize_(result.shape).copy_(result)


@overridable
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int | str = 1,
) -> Tensor:
    """`nn.functional.binary_cross_entropy_with_logits`, with the reduction as a number."""
    return F.binary_cross_entropy_with_logits(
        input, target, weight, reduction=named(reduction), pos_weight=pos_weight
    )


@overridable
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | str = 1
) -> Tensor:
    """`nn.functional.cosine_embedding_loss`, with the reduction as a number."""
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=named(reduction))


@overridable
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int | str = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """`nn.functional.ctc_loss`, with the reduction as a number."""
    return F.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, named(reduction), zero_infinity
    )


@overridable
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int | str = 1
) -> Tensor:
    """`nn.functional.hinge_embedding_loss`, with the reduction as a number."""
    return F.hinge_embedding_loss(input, target, margin, reduction=named(reduction))


@overridable
def kl_div(input: Tensor, target: Tensor, reduction: int | str = 1, *, log_target: bool = False) -> Tensor:
    """`nn.functional.kl_div`, with the reduction as a number; it does not warn of the mean."""
    return reduced(F.kl_div(input, target, reduction="none", log_target=log_target), named(reduction))


@overridable
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | str = 1
) -> Tensor:
    """`nn.functional.margin_ranking_loss`, with the reduction as a number."""
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=named(reduction))


@overridable
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int | str
) -> Tensor:
    """`nn.functional.poisson_nll_loss`, without defaults and with the reduction as a number."""
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=named(reduction))


@overridable
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int | str = 1,
) -> Tensor:
    """`nn.functional.triplet_margin_loss`, with the reduction as a number."""
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=named(reduction))
