"""What computes PyTorch's ops of layers and losses, by the functions of `nn.functional`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import Parameter, Signature
from typing import Any

from ...core.tensor import Tensor
from ...ops.dispatch.vocabulary import VOCABULARY
from .names import listed
from .nodes import gradients
from .owned import OWN, ROOT, functional, own


def _reduction(number: int) -> str:
    return import_module(f"{ROOT}.nn.functional.reduction").named(number)


@own
def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Tensor:  # fmt: skip
    F, dims = functional(), weight.ndim - 2
    if transposed:
        call = getattr(F, f"conv_transpose{dims}d")
        return call(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return getattr(F, f"conv{dims}d")(input, weight, bias, stride, padding, dilation, groups)


@own
def native_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    out = functional().layer_norm(input, normalized_shape, weight, bias, eps)
    dims = tuple(range(-len(normalized_shape), 0))
    plain = input.detach()
    mean = plain.mean(dims, keepdim=True)
    return out, mean, (plain.var(dims, correction=0, keepdim=True) + eps).rsqrt()


@own
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> Any:
    out = functional().group_norm(input, group, weight, bias, eps)
    plain = input.detach().reshape(N, group, -1)
    return out, plain.mean(2), (plain.var(2, correction=0) + eps).rsqrt()


@own
def native_batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float,
) -> Any:  # fmt: skip
    out = functional().batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        return out, input.new_empty(0), input.new_empty(0)
    plain, dims = input.detach(), (0, *range(2, input.ndim))
    return out, plain.mean(dims), (plain.var(dims, correction=0) + eps).rsqrt()


@own
def native_batch_norm_backward(grads: Any, *args: Any, output_mask: Sequence[bool], **kwargs: Any) -> Any:
    input, weight, bias, running_mean, running_var, training, *options = args
    if training:  # what runs along has had its share, and has none in the result
        running_mean = running_var = None
    given = (input, weight, bias, running_mean, running_var, training, *options)
    count = sum(isinstance(v, Tensor) for v in given)
    return gradients(native_batch_norm, listed(grads), output_mask[:count], given, kwargs)


def _pool_with_indices(dims: int) -> Callable[..., Any]:
    def pool(
        self: Tensor,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        call = getattr(functional(), f"max_pool{dims}d")
        return call(self, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True)

    return pool


OWN |= {f"max_pool{dims}d_with_indices": _pool_with_indices(dims) for dims in (1, 2, 3)}


@own
def embedding_dense_backward(
    grad_output: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    return VOCABULARY.embedding_backward(
        grad_output, indices, num_weights, None if padding_idx < 0 else padding_idx
    )


@own
def native_dropout_backward(grad_output: Tensor, mask: Tensor, p: float) -> Tensor:
    return VOCABULARY.dropout_backward(grad_output, mask._array, p)


@own
def elu(self: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    if (alpha, scale) == (1.6732632423543772, 1.0507009873554805):
        return VOCABULARY.selu(self)
    out = VOCABULARY.elu(self if input_scale == 1 else self * input_scale, alpha)
    return out if scale == 1 else out * scale


@own
def _unique2(
    self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    return _unique(self, None, sorted, return_inverse, return_counts)


@own
def unique_dim(
    self: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    return _unique(self, dim, sorted, return_inverse, return_counts)


def _unique(self: Tensor, dim: int | None, sorted: bool, return_inverse: bool, return_counts: bool) -> Any:
    root = import_module(ROOT)
    found = root.unique(self, sorted, return_inverse, return_counts, dim)
    out, *rest = found if isinstance(found, tuple) else (found,)
    inverse = rest.pop(0) if return_inverse else root.empty(0, dtype=root.int64)
    return out, inverse, rest[0] if return_counts else root.empty(0, dtype=root.int64)


@own
def nll_loss_forward(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> Any:
    loss = functional().nll_loss(
        self, target, weight, ignore_index=ignore_index, reduction=_reduction(reduction)
    )
    counted = target != ignore_index
    if weight is None:
        return loss, counted.sum().to(self.dtype)
    return loss, (weight[target * counted] * counted).sum().detach()


def _loss(function: str, names: Sequence[str]) -> Callable[..., Any]:
    parameters = [
        Parameter(n, Parameter.POSITIONAL_OR_KEYWORD, annotation=Tensor) for n in ("self", "target")
    ]
    for name in names:
        kind, default = _OPTIONS[name]
        parameters.append(Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=kind, default=default))
    signature = Signature(parameters)

    def loss(*args: Any, **kwargs: Any) -> Tensor:
        given = signature.bind(*args, **kwargs).arguments
        reduction = _reduction(given.pop("reduction", 1))
        return getattr(functional(), function)(
            given.pop("self"), given.pop("target"), **given, reduction=reduction
        )

    loss.__signature__ = signature.replace(return_annotation=Tensor)
    return loss


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "beta": (float, 1.0), "delta": (float, 1.0), "ignore_index": (int, -100), "label_smoothing": (float, 0.0),
    "margin": (float, 1.0), "p": (float, 1), "reduction": (int, 1), "weight": (Tensor | None, None),
}  # fmt: skip
_LOSSES = {
    "binary_cross_entropy": "weight reduction",
    "cross_entropy_loss": "weight reduction ignore_index label_smoothing",
    "huber_loss": "reduction delta",
    "l1_loss": "reduction",
    "mse_loss": "reduction",
    "multi_margin_loss": "p margin weight reduction",
    "multilabel_margin_loss": "reduction",
    "nll_loss": "weight reduction ignore_index",
    "nll_loss2d": "weight reduction ignore_index",
    "nll_loss_nd": "weight reduction ignore_index",
    "smooth_l1_loss": "reduction beta",
    "soft_margin_loss": "reduction",
}
"""What each takes after the input and the target, in PyTorch's order; the reduction is a number."""
_OTHERWISE_CALLED = {
    "cross_entropy_loss": "cross_entropy",
    "nll_loss2d": "nll_loss",
    "nll_loss_nd": "nll_loss",
}
OWN |= {name: _loss(_OTHERWISE_CALLED.get(name, name), rest.split()) for name, rest in _LOSSES.items()}


@own
def _scaled_dot_product_flash_attention_for_cpu(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    F = functional()
    out = F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
    scores = (
        query.detach()
        @ key.detach().transpose(-1, -2)
        * (query.shape[-1] ** -0.5 if scale is None else scale)
    )
    if is_causal:
        mask = import_module(ROOT).ones_like(scores, dtype=import_module(ROOT).bool).tril()
        scores = scores.masked_fill(~mask, float("-inf"))
    if attn_mask is not None:
        scores = (
            scores + attn_mask
            if attn_mask.is_floating_point()
            else scores.masked_fill(~attn_mask, float("-inf"))
        )
    return out, scores.logsumexp(-1)


@own
def constant_pad_nd(self: Tensor, pad: Any, value: Any = 0) -> Tensor:
    return functional().pad(self, pad, value=value)
