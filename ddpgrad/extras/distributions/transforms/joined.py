"""Transforms of parts of a tensor, and by a distribution function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .... import Tensor, cat, stack
from .. import constraints
from ..utils import same_as, sum_rightmost
from .base import Transform


class _Joined(Transform):
    """The base of transforms of the parts of a tensor along the dimension `dim`, one each.

    tseq: the transforms. AssertionError, as in PyTorch, for what is none and for a size that is not that of all parts.
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:
        return all(t.bijective for t in self.transforms)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        raise NotImplementedError(f"{type(self).__name__} has no _parts")

    def _join(self, parts: list[Tensor]) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _join")

    def _check(self, x: Tensor, size: int, what: str) -> None:
        if not -x.ndim <= self.dim < x.ndim:
            raise AssertionError(f"dim {self.dim} is out of range for a tensor of {x.ndim} dimensions")
        if x.size(self.dim) != size:
            raise AssertionError(f"x.size({self.dim}) = {x.size(self.dim)} must equal {what} {size}")

    def _call(self, x: Tensor) -> Tensor:
        return self._join([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._join([t.inv(part) for t, part in zip(self.transforms, self._parts(y), strict=True)])

    def _slopes(self, x: Tensor, y: Tensor) -> list[Tensor]:
        each = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return [t.log_abs_det_jacobian(before, after) for t, before, after in each]


class CatTransform(_Joined):
    """Transforms of slices of the given `lengths`, 1 each if not given, one after the other."""

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"{len(self.transforms)} transforms have {len(self.lengths)} lengths")

    @property
    def event_dim(self) -> int:
        """How many dimensions one event has: as many as that of the transform which needs most."""
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The size that an input has in `dim`."""
        return sum(self.lengths)

    @property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        self._check(x, self.length, "length")
        return x.split(self.lengths, self.dim)

    def _join(self, parts: list[Tensor]) -> Tensor:
        return cat(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        slopes = [
            sum_rightmost(slope, self.event_dim - t.domain.event_dim)
            for t, slope in zip(self.transforms, self._slopes(x, y), strict=True)
        ]
        # Counted from the end, and less the dimensions that the slopes no longer have.
        dim = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        if dim < 0:
            return cat(slopes, dim)
        total = slopes[0]
        for slope in slopes[1:]:
            total = total + slope
        return total


class StackTransform(_Joined):
    """A transform for each slice of a tensor."""

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        self._check(x, len(self.transforms), "len(transforms)")
        return x.unbind(self.dim)

    def _join(self, parts: list[Tensor]) -> Tensor:
        return stack(parts, self.dim)

    @property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return stack(self._slopes(x, y), self.dim)


class CumulativeDistributionTransform(Transform):
    """y = the distribution function of `distribution` at x, which is uniform where x is drawn from it."""

    bijective = True
    codomain = constraints.unit_interval
    domain = same_as("distribution.support")
    sign = +1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
