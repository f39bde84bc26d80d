"""Padding layers, for the last one to three dimensions of (N, C, *size) or (C, *size)."""

from __future__ import annotations

from typing import Any, ClassVar

from ...backend.windows import per_dimension
from ...core.tensor import Tensor
from .. import functional as F
from .dims import OverDims


class _Pad(OverDims):
    """padding: one width for all sides, or (before, after) of the last dimension, then of the one before it."""

    _mode: ClassVar[str]

    def __init_subclass__(cls, mode: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if mode is not None:
            cls._mode = mode

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = per_dimension(padding, 2 * self._dims, "padding")

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPadNd):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPadNd, dims=1):
    """`value` put before and after signals."""


class ConstantPad2d(_ConstantPadNd, dims=2):
    """`value` put around images."""


class ConstantPad3d(_ConstantPadNd, dims=3):
    """`value` put around volumes."""


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Zeros put before and after signals."""


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Zeros put around images."""


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Zeros put around volumes."""


class _ReflectionPadNd(_Pad, mode="reflect"):
    """What the three layers share."""


class ReflectionPad1d(_ReflectionPadNd, dims=1):
    """Elements mirrored at the first and the last one, before and after signals."""


class ReflectionPad2d(_ReflectionPadNd, dims=2):
    """Elements mirrored at the first and the last one, around images."""


class ReflectionPad3d(_ReflectionPadNd, dims=3):
    """Elements mirrored at the first and the last one, around volumes."""


class _ReplicationPadNd(_Pad, mode="replicate"):
    """What the three layers share."""


class ReplicationPad1d(_ReplicationPadNd, dims=1):
    """Copies of the elements at the edge, before and after signals."""


class ReplicationPad2d(_ReplicationPadNd, dims=2):
    """Copies of the elements at the edge, around images."""


class ReplicationPad3d(_ReplicationPadNd, dims=3):
    """Copies of the elements at the edge, around volumes."""


class _CircularPadNd(_Pad, mode="circular"):
    def forward(self, input: Tensor) -> Tensor:
        if input.ndim - self._dims not in (1, 2):
            raise ValueError(
                f"expected {self._dims + 1}D or {self._dims + 2}D input (got {input.ndim}D input) in {self._get_name()}"
            )
        return super().forward(input)


class CircularPad1d(_CircularPadNd, dims=1):
    """The elements of the other end, before and after signals."""


class CircularPad2d(_CircularPadNd, dims=2):
    """The elements of the other end, around images."""


class CircularPad3d(_CircularPadNd, dims=3):
    """The elements of the other end, around volumes."""
