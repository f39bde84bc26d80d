"""`torch.sparse` on dense memory: tensors of indices and values have the full size.

Values and gradients are PyTorch's; the memory is that of all elements, which one warning per process
says. What asks a tensor which of its elements are stored (`indices()`, `values()`) is not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend import dtype as dtypes
from ..core import upcalls
from ..core.tensor import Tensor
from ..ops.creation.data import as_tensor
from ..ops.creation.factories import zeros
from ..ops.creation.interop import TYPED
from ..ops.elementwise.conversion import to
from ..ops.indexing.index import index_put
from ..ops.linalg import products
from .settings import say_once


def _say_dense() -> None:
    say_once("sparse", "ddpgrad has no sparse layouts: this tensor, and what is computed from it, is dense")


def sparse_coo_tensor(
    indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """A dense tensor with `values` (nnz, ...) added at `indices` (dimensions, nnz), and 0 elsewhere.

    size: the largest index of each dimension plus one, where it is not given. Gradients flow to `values`.
    IndexError for an index outside `size`.
    """
    _say_dense()
    places = to(as_tensor(indices, device=device), dtypes.int64)
    added = as_tensor(values, dtype=dtype, device=device)
    if places.ndim != 2 or added.ndim == 0 or places.shape[1] != added.shape[0]:
        raise RuntimeError(
            f"sparse_coo_tensor(): indices are (dimensions, nnz) and values (nnz, ...); got {list(places.shape)} and "
            f"{list(added.shape)}"
        )
    if size is None:
        size = [*(int(place.max()) + 1 for place in places), *added.shape[1:]]
    empty = zeros(*size, dtype=added.dtype, device=added.device)
    dense = index_put(empty, tuple(places), added, accumulate=True)
    return dense.detach().requires_grad_() if requires_grad else dense


@upcalls.to_sparse.register
def to_sparse(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`input` itself."""
    _say_dense()
    return input


def mm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """mat1 @ mat2 of matrices."""
    return products.mm(mat1, mat2)


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * mat1 @ mat2."""
    return products.addmm(input, mat1, mat2, beta=beta, alpha=alpha)


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum over dimensions, or over all."""
    return input.sum(dim=dim, dtype=dtype) if dim is not None else input.sum(dtype=dtype)


def _typed(name: str) -> Any:
    def make(indices: Any, values: Any, size: Sequence[int] | None = None) -> Tensor:
        return sparse_coo_tensor(indices, values, size, dtype=TYPED[name].dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"`sparse_coo_tensor` of {TYPED[name].dtype!r}, as old programs call it."
    return make


FloatTensor, DoubleTensor, HalfTensor = map(_typed, ("FloatTensor", "DoubleTensor", "HalfTensor"))
IntTensor, LongTensor, ByteTensor = map(_typed, ("IntTensor", "LongTensor", "ByteTensor"))

__all__ = [
    "ByteTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor", "addmm", "mm", "sparse_coo_tensor",
    "sum", "to_sparse",
]  # fmt: skip
