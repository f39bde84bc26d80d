"""The ops: every function that computes on Tensors, each declared once."""

from __future__ import annotations

from ..autograd.engine import set_tensor_vocabulary
from . import (
    activation,
    attention,
    composed,
    conv,
    creation,
    dropout,
    elementwise,
    index,
    inplace,
    loss,
    matrix,
    methods,
    norm,
    pointwise,
    pool,
    reduce,
    shape,
)
from .declare import OPS
from .vocabulary import VOCABULARY

set_tensor_vocabulary(VOCABULARY)

__all__ = [
    "OPS", "VOCABULARY", "activation", "attention", "composed", "conv", "creation", "dropout", "elementwise",
    "index", "inplace", "loss", "matrix", "methods", "norm", "pointwise", "pool", "reduce", "shape",
]  # fmt: skip
