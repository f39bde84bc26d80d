"""The ops: every function that computes on Tensors, each declared once.

dispatch      what an op is: its declaration, a call, its node in the graph, views and writes, promotion, autocast
elementwise   of one operand (`unary`), of two (`binary`, `bitwise`), activations, special and complex functions
reduction     sums, statistics, cumulative ops, sorting, counting, norms, distances
shape         views, joins, splits, diagonals
indexing      reading and writing elements by their place
creation      new tensors: of given values, from data, of random numbers
linalg        products of matrices and linear algebra
signal        Fourier transforms, spectrograms, window functions
layers        convolution, pooling, attention, recurrence, normalisation, dropout, embedding, fused losses
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules, walk_packages

from ..core.tensor import Tensor as Tensor
from ..core.tensor import wrap
from ..core.upcalls import attach_sparse, declare_all_ops, new_tensor, tensor_vocabulary
from . import methods
from .creation import data, draws, factories, interop
from .dispatch.declare import OPS
from .dispatch.vocabulary import VOCABULARY
from .elementwise import (
    activation,
    arithmetic,
    binary,
    bitwise,
    complex,
    conversion,
    fused_sums,
    special,
    unary,
)
from .indexing import gather, index, put, scatter, setitem
from .linalg import matrix, products
from .reduction import order, queries, reduce, scan, sorting, statistics
from .shape import diagonal, rearranging, shape, splitting, stacking, strided

tensor_vocabulary.register(lambda: VOCABULARY)
new_tensor.register(wrap)
methods.attach()


@declare_all_ops.register
@cache
def load_all() -> None:
    """Declare the ops of all modules here: those that are not imported above wait until they are used."""
    for module in walk_packages(__path__, f"{__name__}."):
        import_module(module.name)
    methods.attach_declared()
    attach_sparse()


COLLECTIVES = ("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")
"""Namespaces of PyTorch's collectives."""


@cache
def _modules() -> frozenset[str]:
    return frozenset(module.name for module in iter_modules(__path__))


def __getattr__(name: str) -> object:
    """As `torch.ops` this page has the ops that users register (`torch.library`)."""
    if name in _modules():
        return import_module(f"{__name__}.{name}")
    from .. import library

    return library.load_library if name == "load_library" else library.namespace(name)
