"""Dtypes that ops and functions are not made for, by name: PyTorch refuses them on a CPU.

b: bool, i: integers, c: complex numbers. What counts is the dtype that the operands are brought to. Listed is only
what would be computed otherwise, by rules for other numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...backend.dtype import scalar_category
from ...core.tensor import Tensor

_LETTERS = "bi.c"  # by category: bool, integers, floating point, complex


def _by_name(groups: Mapping[str, str]) -> dict[str, str]:
    return {name: letters for letters, names in groups.items() for name in names.split()}


REFUSED_BY_OPS = _by_name({
    "b": "abs addcmul",
    "i": "frac silu",
    "bi": "frexp hypot igamma igammac lerp logaddexp logaddexp2 logcumsumexp nextafter rms_norm",
    "c": "airy_ai argsort chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w digamma erf "
    "erfc erfcx heaviside hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p log_ndtr logit "
    "nansum ndtr shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w spherical_bessel_j0 xlog1py xlogy",
    "bc": "max_pool threshold",
    "bic": "batch_norm_train celu cross_entropy_rows elu gelu glu group_norm hardshrink hardsigmoid hardswish layer_norm "
    "leaky_relu mish nll_loss_rows selu softplus softshrink",
})  # fmt: skip

REFUSED_BY_FUNCTIONS = _by_name({
    "b": "kthvalue linalg_vander median mvlgamma nanmedian topk trace",
    "c": "bernoulli nanmean pdist unique_consecutive",
    "bc": "bucketize isin searchsorted",
})  # fmt: skip
"""Functions made of ops (`tensor_function`)."""

REFUSED_BY_LAYERS = _by_name({
    "i": "multi_margin_loss multilabel_margin_loss soft_margin_loss unfold",
    "bi": "rrelu",
    "c": "adaptive_avg_pool1d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d cosine_similarity "
    "fractional_max_pool2d fractional_max_pool3d upsample_bilinear",
    "bc": "interpolate local_response_norm upsample upsample_nearest",
    "ic": "binary_cross_entropy_with_logits huber_loss kl_div mse_loss multilabel_soft_margin_loss "
    "scaled_dot_product_attention smooth_l1_loss",
    "bic": "adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d batch_norm binary_cross_entropy ctc_loss "
    "embedding_bag max_unpool1d max_unpool2d max_unpool3d prelu",
})  # fmt: skip
"""Functions of `nn.functional`."""


def refuse_dtypes(name: str, letters: str, operands: Iterable[Any], numbers: bool = False) -> None:
    """`NotImplementedError` where the widest kind among the Tensors of `operands`, and `numbers` if asked, is refused."""
    widest, found = -1, "bool"
    for value in operands:
        if isinstance(value, Tensor):
            category, kind = value.dtype.category, value.dtype.scalar_type
        elif numbers and isinstance(value, (bool, int, float, complex)):
            category, kind = scalar_category(value), type(value).__name__
        else:
            continue
        if category > widest:
            widest, found = category, kind
    if widest >= 0 and _LETTERS[widest] in letters:
        raise NotImplementedError(f"{name}(): not implemented for '{found}'")


def refusing(function: Callable[..., Any], letters: str) -> Callable[..., Any]:
    """`function`, which refuses operands of the dtypes `letters`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        array = getattr(args[0], "_array", None) if args else None
        if array is None or array.dtype.kind != "f":
            refuse_dtypes(function.__name__, letters, (*args, *kwargs.values()))
        return function(*args, **kwargs)

    return call
