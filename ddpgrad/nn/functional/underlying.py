"""Functions of `torch` that take other arguments than those of `torch.nn.functional` of the same name."""

from __future__ import annotations

from typing import Any

from ...backend.dtype import float64, int8, int32, int64, uint8
from ...core.overrides import overridable
from ...core.tensor import Tensor
from ...ops.dispatch.vocabulary import VOCABULARY
from ...ops.layers.dropout import dropout as with_flags
from . import dropouts, normalization
from .embedding import embedding as of_rows


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
