"""The ops: every function that computes on Tensors, each declared once."""

from __future__ import annotations

from ..autograd.engine import set_tensor_vocabulary
from . import (
    activation,
    arithmetic,
    attention,
    binary,
    complex,
    composed,
    conv,
    counting,
    creation,
    data,
    diagonal,
    differences,
    distance,
    draws,
    dropout,
    einsum,
    elementwise,
    embedding,
    factorizations,
    factors,
    fourier,
    index,
    inplace,
    interop,
    inverses,
    linalg,
    loss,
    low_rank,
    matrix,
    matrix_norms,
    methods,
    norm,
    norms,
    packed,
    pointwise,
    pool,
    products,
    putting,
    queries,
    rearranging,
    recurrent,
    reduce,
    scan,
    scattering,
    selection,
    shape,
    sorting,
    special,
    spectrogram,
    splitting,
    stacking,
    statistics,
    strided,
    window_functions,
)
from .declare import OPS
from .vocabulary import VOCABULARY

set_tensor_vocabulary(VOCABULARY)
methods.attach()

__all__ = [
    "OPS", "VOCABULARY", "data", "draws", "interop", "activation", "arithmetic", "attention", "binary", "complex", "composed",
    "conv", "counting", "creation", "diagonal", "differences", "distance", "dropout", "einsum", "elementwise",
    "embedding", "factorizations", "factors", "fourier", "index", "inplace", "inverses", "linalg",
    "loss", "low_rank", "matrix", "matrix_norms", "methods", "norm", "norms", "packed", "pointwise", "pool",
    "products", "putting", "queries", "rearranging", "recurrent", "reduce", "scan", "scattering",
    "selection", "shape", "sorting", "special", "spectrogram", "splitting", "stacking", "statistics",
    "strided", "window_functions",
]  # fmt: skip
