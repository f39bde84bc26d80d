"""What a DTensor says of the whole: its shape, where it lies, its gradient."""

from __future__ import annotations

from typing import Any

from ...core.size import Size
from ...core.tensor import Tensor, wrap
from ..device_mesh import DeviceMesh
from .layout import Placement
from .mesh_array import MeshArray, without_partial
from .mesh_kernels import mesh_array
from .parts import placed, plain


class Described:
    """The base of DTensor that has these attributes."""

    __slots__ = ()
    _array: Any
    _layout: Any
    _grad: Any
    _grad_fn: Any
    _requires_grad: bool
    settled: Any
    part_of: Any

    @property
    def device_mesh(self) -> DeviceMesh:
        """The ranks that have it."""
        return self._layout.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """How it lies on them."""
        return self._layout.placements

    @property
    def shape(self) -> Size:
        return Size(self._layout.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """The number of elements of the whole."""
        return self.shape.numel()

    nelement = numel

    def stride(self, dim: int | None = None) -> Any:
        return wrap(mesh_array(plain(self._array), self._layout)).stride(dim)

    @property
    def grad(self) -> Tensor | None:
        return Tensor.grad.fget(self)  # type: ignore[attr-defined]

    @grad.setter
    def grad(self, value: Any) -> None:
        if isinstance(value, Described):
            lies = without_partial(self.placements)
            if isinstance(value._array, MeshArray) or (
                value.shape == self.shape and value.placements != lies
            ):
                value = value.settled(lies)
        elif isinstance(value, Tensor) and value.shape == self.shape:
            value = self.part_of(value)
        Tensor.grad.fset(self, value)  # type: ignore[attr-defined]

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    @property
    def requires_grad(self) -> bool:
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value and self._grad_fn is None and isinstance(self._array, MeshArray):
            layout = self._array.layout  # a leaf from here on
            self._array, self._layout = placed(self._array.part, layout), layout
        Tensor.requires_grad.fset(self, value)  # type: ignore[attr-defined]

    @requires_grad.deleter
    def requires_grad(self) -> None:
        Tensor.requires_grad.fdel(self)  # type: ignore[attr-defined]

    @property
    def nbytes(self) -> int:
        return self.numel() * self._array.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]
