"""The ops that autocast casts for, by device: PyTorch's lists, with the names here.

Source: https://pytorch.org/docs/stable/amp.html#autocast-op-reference
"""

from __future__ import annotations

_PRODUCTS = {
    "matmul", "addmm", "addbmm", "baddbmm", "linear", "convolution", "convolution_input", "prelu",
    "scaled_dot_product_attention", "attention", "lstm_sequence", "rnn_sequence", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
}  # fmt: skip

LOWER: dict[str, set[str]] = {
    "cpu": _PRODUCTS | {"tensordot", "inner", "linalg_vecdot", "chain_matmul"},
    "cuda": _PRODUCTS | {"mv", "addmv", "addr", "chain_matmul", "gru_sequence"},
}
"""They compute in autocast's type."""

_LOSSES = {
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "nll_loss", "cross_entropy", "kl_div", "poisson_nll_loss",
    "hinge_embedding_loss", "cosine_embedding_loss", "margin_ranking_loss", "soft_margin_loss", "triplet_margin_loss",
    "multi_margin_loss", "multilabel_margin_loss", "binary_cross_entropy_with_logits",
}  # fmt: skip

FLOAT32: dict[str, set[str]] = {
    "cpu": _LOSSES | {
        "binary_cross_entropy", "ctc_loss", "avg_pool3d", "max_pool3d", "max_unpool2d", "max_unpool3d",
        "adaptive_avg_pool3d", "adaptive_max_pool3d", "fractional_max_pool2d", "fractional_max_pool3d", "reflect_pad1d",
        "reflect_pad2d", "replicate_pad1d", "replicate_pad2d", "replicate_pad3d", "grid_sample", "polar", "prod", "quantile", "nanquantile", "stft", "cdist", "trace",
        "view_as_complex", "fft_c2c", "fft_r2c", "fft_c2r", "pinverse", "cholesky_factor", "inv", "svd_factor",
        "svdvals", "solve", "solve_triangular", "lstsq_solution", "qr_factor", "complete_qr", "geqrf_pair",
        "eig_factor", "eigh_factor", "eigvals", "eigvalsh", "lu_factor", "det", "slogdet_pair", "pseudo_inverse",
        "cholesky_solve", "linalg_householder_product", "ormqr",
    },
    "cuda": _LOSSES | {
        "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt",
        "sinh", "tan", "pow", "softplus", "layer_norm", "group_norm", "norm", "cosine_similarity", "dist", "pdist",
        "cdist", "renorm", "logsumexp", "prod", "softmax", "log_softmax", "cumprod", "cumsum", "sum", "interpolate",
    },
}  # fmt: skip
"""They compute in float32."""

PROMOTED: dict[str, set[str]] = {
    "cpu": {"stack", "cat", "index_copy"},
    "cuda": {
        "stack", "cat", "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sample", "index_put",
        "tensordot", "scatter_add",
    },
}  # fmt: skip
"""They compute in the widest of their arguments' types."""

BANNED: dict[str, dict[str, str]] = {
    "cpu": {},
    "cuda": {
        "binary_cross_entropy": "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. "
        "Most models use a Sigmoid layer right before the binary cross entropy layer. In this case, combine the two "
        "layers using torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss. "
        "binary_cross_entropy_with_logits and BCEWithLogits are safe to autocast."
    },
}
"""They are errors, with these messages."""

LISTED = frozenset(
    name for table in (LOWER, FLOAT32, PROMOTED, BANNED) for names in table.values() for name in names
)
