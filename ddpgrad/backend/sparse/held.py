"""What raw arrays of all sparse layouts have in common."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NoReturn, Self

import numpy as np

from ..registry import SparseArray, Unsupported, backend_for
from ..shaped import Shaped

Array = Any


class HeldElements(Shaped, SparseArray):
    """The shape and dtype of an array that holds only some of its elements, as `values`, and arithmetic on these.

    It stands where other raw arrays stand: in a Tensor, in a walk of backward, in a node of the graph. It has no memory in
    strides: what asks for that gets `Unsupported`.
    """

    __slots__ = ()
    strides = ()
    flags = SimpleNamespace(
        aligned=False, c_contiguous=False, f_contiguous=False, carray=False, writeable=True
    )
    __array_priority__ = 1000  # CuPy leaves `array + sparse` to it
    base = None

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def nnz(self) -> int:
        return len(self.values)

    def transpose(self, dims: Sequence[int]) -> Any:
        raise NotImplementedError

    def swapaxes(self, dim0: int, dim1: int) -> Any:
        dims = list(range(self.ndim))
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
        return self.transpose(dims)

    def __getattr__(self, name: str) -> NoReturn:
        raise self._refused(f"has no {name}")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._refused("is no array in memory")

    def _refused(self, what: str) -> Unsupported:
        return Unsupported(
            f"a sparse tensor of shape {list(self.shape)} {what}: this function does not take layout torch.{self.layout}; call "
            "to_dense() first"
        )

    def item(self) -> Any:
        """The only element, as a Python number."""
        return self.dense().item()

    def dense(self) -> Array:
        """All elements, as an ordinary array of its own."""
        raise NotImplementedError

    def with_values(self, values: Array) -> Self:
        """The same places with other values."""
        raise NotImplementedError

    def copy(self) -> Self:
        raise NotImplementedError

    def astype(self, dtype: Any, copy: bool = True) -> Self:
        if self.dtype == dtype:
            return self.copy() if copy else self
        return self.with_values(backend_for(self.values).cast(self.values, dtype))

    @property
    def T(self) -> Self:
        raise NotImplementedError

    def dot(self, other: Any) -> Any:
        """Matrix product: with an ordinary vector or matrix an ordinary one, with a sparse matrix a sparse one."""
        raise NotImplementedError

    def plus(self, other: Any) -> Self:
        """The sum of two of this layout."""
        raise NotImplementedError

    def times(self, other: Any) -> Self:
        """The product with a number, an ordinary array that broadcasts to this shape, or another sparse one."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        return self.plus(other) if isinstance(other, SparseArray) else self.added_to(other)

    __radd__ = __add__

    def __iadd__(self, other: Any) -> Any:
        """In place for another sparse array; with an ordinary one the sum is an ordinary one too."""
        if not isinstance(other, SparseArray):
            return self.added_to(other)
        self[...] = self.plus(other)
        return self

    def __sub__(self, other: Any) -> Any:
        return self.plus(-other)

    def __neg__(self) -> Self:
        return self.with_values(-self.values)

    def __mul__(self, other: Any) -> Self:
        return self.times(other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        if getattr(other, "ndim", 0):
            raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor")
        return self.with_values(self.values / other)

    def __getitem__(self, index: Any) -> Self:
        if not is_everything(index):
            raise Unsupported("a sparse tensor is not read by index here; call to_dense() first")
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        """Become `value` altogether: another sparse array, or 0."""
        if not is_everything(index):
            raise Unsupported("a sparse tensor cannot be written to by index; call to_dense() first")
        if isinstance(value, SparseArray):
            self.become(value)
        elif isinstance(value, (bool, int, float, complex)) and value == 0:
            self.clear()
        else:
            raise Unsupported(
                "a sparse tensor can be overwritten with a sparse one, or with 0: copy_() between dense and sparse "
                "tensors is not implemented"
            )

    def become(self, other: Any) -> None:
        """Hold the elements of another sparse array."""
        raise NotImplementedError

    def clear(self) -> None:
        """Hold no element."""
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """The operators under NumPy's names, and `dense - sparse`; a sum may be written into the dense array."""
        target, sign = (out[0] if out else None), _SIGNS.get(ufunc)
        if method == "__call__" and not options:
            first, last = inputs[0], inputs[-1]
            if sign and not isinstance(first, SparseArray) and (target is None or target is first):
                return self.added_to(first if hasattr(first, "dtype") else np.asarray(first), target, sign)
            if ufunc in _OPERATORS and target is None:
                pair = (first, last) if isinstance(first, SparseArray) else (last, first)
                return _OPERATORS[ufunc](*pair)
            if ufunc is np.negative and target is None:
                return self.__neg__()
            if ufunc is np.matmul and target is None:
                return first.dot(last) if isinstance(first, HeldElements) else last.T.dot(first.T).T
        raise Unsupported(f"{ufunc.__name__} is not defined for sparse tensors; call to_dense() first")


_SIGNS = {np.add: 1, np.subtract: -1}
# With a sparse array first; the others are symmetric.
_OPERATORS: dict[Any, Any] = {
    np.add: HeldElements.__add__,
    np.subtract: HeldElements.__sub__,
    np.multiply: HeldElements.__mul__,
}


def is_everything(index: Any) -> bool:
    """Whether an index is `...`."""
    return index is Ellipsis or (index.__class__ is tuple and len(index) == 1 and index[0] is Ellipsis)


def as_columns(dense: Array) -> Array:
    """An ordinary vector or matrix as a matrix; RuntimeError for other shapes."""
    if dense.ndim not in (1, 2):
        raise RuntimeError(
            f"a product with a sparse tensor takes a vector or a matrix, got shape {list(dense.shape)}"
        )
    return dense if dense.ndim == 2 else dense[:, None]
