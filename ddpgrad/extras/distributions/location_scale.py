"""The base of distributions on all real numbers that are moved by `loc` and stretched by `scale`."""

from __future__ import annotations

from typing import Any, ClassVar

from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, same_as


class LocationScale(Distribution):
    """Keeps `loc` and `scale`, in one shape; `loc` is the peak."""

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    mode: Any = same_as("loc")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)
