"""The ops: every function that computes on Tensors, each declared once.

What an op is, and how it runs:
    declare, tensor_function    the declarations
    calls, node, packed, views, inplace, writing, out    a call, its node, views, writes
    promotion, explain, autocast, half, methods, vocabulary, samples    what they share
Elementwise: elementwise, arithmetic, pointwise, binary, special, complex, activation, dropout
Reductions and orders: reduce, statistics, scan, selection, sorting, counting, differences
Norms and distances: norms, matrix_norms, distance; layers that normalise: norm
Shapes: shape, rearranging, stacking, splitting, diagonal, strided, copies
Indices: index, scattering, putting, embedding
New tensors: creation, data, draws, interop, window_functions
Products and linear algebra: matrix, products, einsum, linalg, factors, factorizations, indefinite,
    inverses, low_rank, adjoint; transforms: fourier, spectrogram
Layers: conv, pool, windows, places, resample, interpolation, fold, attention, recurrent
Losses and updates: loss, bernoulli_loss, update
"""

from __future__ import annotations

import sys

from ..autograd.engine import set_tensor_vocabulary
from ..missing import missing
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
    indefinite,
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


def __getattr__(name: str) -> object:
    """As `torch.ops` this page has the ops that users register (`torch.library`)."""
    if name in ("aten", "load_library") or f"{__name__.rpartition('.')[0]}.library" in sys.modules:
        from .. import library

        return library.load_library if name == "load_library" else library.namespace(name)
    raise missing(globals(), name)


__all__ = [
    "OPS", "VOCABULARY", "data", "draws", "interop", "activation", "arithmetic", "attention", "binary", "complex", "composed",
    "conv", "counting", "creation", "diagonal", "differences", "distance", "dropout", "einsum", "elementwise",
    "embedding", "factorizations", "factors", "fourier", "indefinite", "index", "inplace", "inverses", "linalg",
    "loss", "low_rank", "matrix", "matrix_norms", "methods", "norm", "norms", "packed", "pointwise", "pool",
    "products", "putting", "queries", "rearranging", "recurrent", "reduce", "scan", "scattering",
    "selection", "shape", "sorting", "special", "spectrogram", "splitting", "stacking", "statistics",
    "strided", "window_functions",
]  # fmt: skip
