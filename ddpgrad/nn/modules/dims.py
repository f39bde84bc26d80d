"""Layers that differ in the number of dimensions only."""

from __future__ import annotations

from typing import Any, ClassVar

from .module import Module


class OverDims(Module):
    """A layer over the last dimensions of its input; `class Conv2d(_Conv, dims=2)` says over how many."""

    _dims: ClassVar[int]

    def __init_subclass__(cls, dims: int | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if dims is not None:
            cls._dims = dims
