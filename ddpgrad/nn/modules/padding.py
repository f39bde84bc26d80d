"""Padding layers, for the last one to three dimensions of (N, C, *size) or (C, *size)."""

from __future__ import annotations

from typing import Any, ClassVar

from ...core.tensor import Tensor
from ...ops.layers.windows import per_dimension
from .. import functional as F
from .module import Module


class _Pad(Module):
    """padding: one width for all sides, or (before, after) of the last dimension, then of the one before it."""

    _dims: ClassVar[int]
    _mode: ClassVar[str]

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = per_dimension(padding, 2 * self._dims, "padding")

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPad):
    """`value` put before and after signals."""

    _dims = 1


class ConstantPad2d(_ConstantPad):
    """`value` put around images."""

    _dims = 2


class ConstantPad3d(_ConstantPad):
    """`value` put around volumes."""

    _dims = 3


class ZeroPad1d(_ZeroPad):
    """Zeros put before and after signals."""

    _dims = 1


class ZeroPad2d(_ZeroPad):
    """Zeros put around images."""

    _dims = 2


class ZeroPad3d(_ZeroPad):
    """Zeros put around volumes."""

    _dims = 3


class ReflectionPad1d(_Pad):
    """Elements mirrored at the first and the last one, before and after signals."""

    _dims = 1
    _mode = "reflect"


class ReflectionPad2d(_Pad):
    """Elements mirrored at the first and the last one, around images."""

    _dims = 2
    _mode = "reflect"


class ReflectionPad3d(_Pad):
    """Elements mirrored at the first and the last one, around volumes."""

    _dims = 3
    _mode = "reflect"


class ReplicationPad1d(_Pad):
    """Copies of the elements at the edge, before and after signals."""

    _dims = 1
    _mode = "replicate"


class ReplicationPad2d(_Pad):
    """Copies of the elements at the edge, around images."""

    _dims = 2
    _mode = "replicate"


class ReplicationPad3d(_Pad):
    """Copies of the elements at the edge, around volumes."""

    _dims = 3
    _mode = "replicate"


class CircularPad1d(_Pad):
    """The elements of the other end, before and after signals."""

    _dims = 1
    _mode = "circular"


class CircularPad2d(_Pad):
    """The elements of the other end, around images."""

    _dims = 2
    _mode = "circular"


class CircularPad3d(_Pad):
    """The elements of the other end, around volumes."""

    _dims = 3
    _mode = "circular"
