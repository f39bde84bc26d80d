"""Transforms composed of others, and transforms of event shapes."""

from __future__ import annotations

import math
import weakref
from typing import Any

from .... import Size, Tensor, zeros_like
from .. import constraints
from ..utils import same_as, sum_rightmost
from .base import Transform


class ComposeTransform(Transform):
    """Transforms one after the other."""

    def __init__(self, parts: list[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = Transform.__hash__

    @property
    def domain(self) -> Any:
        return _wide(self.parts[0].domain, self._event_dims()[0]) if self.parts else constraints.real

    @property
    def codomain(self) -> Any:
        return _wide(self.parts[-1].codomain, self._event_dims()[-1]) if self.parts else constraints.real

    @property
    def bijective(self) -> bool:
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        return math.prod(part.sign for part in self.parts)

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if cache_size == self._cache_size else ComposeTransform(self.parts, cache_size)

    def _make_inverse(self) -> Transform:
        inverse = ComposeTransform([part.inv for part in reversed(self.parts)], self._cache_size)
        inverse._inv = weakref.ref(self)
        return inverse

    def _event_dims(self) -> list[int]:
        """How many dimensions one event has before and after each part: enough for the part that needs most."""
        grown = [0]
        for part in self.parts:
            grown.append(grown[-1] + part.codomain.event_dim - part.domain.event_dim)
        first = max(part.domain.event_dim - g for part, g in zip(self.parts, grown, strict=False))
        return [first + g for g in grown]

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        total: Any = 0
        for part, dims, before, after in zip(
            self.parts, self._event_dims(), values[:-1], values[1:], strict=False
        ):
            slope = part.log_abs_det_jacobian(before, after)
            total = total + sum_rightmost(slope, dims - part.domain.event_dim)
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        parts = ",\n    ".join(map(repr, self.parts))
        return f"ComposeTransform(\n    {parts}\n)"


def _wide(constraint: Any, event_dim: int) -> Any:
    more = event_dim - constraint.event_dim
    return constraints.independent(constraint, more) if more > 0 else constraint


class IndependentTransform(Transform):
    """`base_transform`, with its slopes summed over the last `reinterpreted_batch_ndims` dimensions."""

    def __init__(self, base_transform: Any, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size) if cache_size else base_transform
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def domain(self) -> Any:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @property
    def codomain(self) -> Any:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    bijective = same_as("base_transform.bijective")
    sign = same_as("base_transform.sign")

    def _call(self, x: Tensor) -> Tensor:
        if x.ndim < self.domain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform._inv_call(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Events of shape `in_shape` in `out_shape`."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError(
                f"in_shape, out_shape have different numbers of elements: {in_shape}, {out_shape}"
            )
        super().__init__(cache_size)

    @property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        return _replaced(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return _replaced(shape, self.out_shape, self.in_shape)


def _replaced(shape: Any, old: Size, new: Size) -> tuple[int, ...]:
    """`shape` with `new` in place of `old` at its end."""
    if len(shape) < len(old):
        raise ValueError("Too few dimensions on input")
    kept = len(shape) - len(old)
    if tuple(shape[kept:]) != tuple(old):
        raise ValueError(f"Shape mismatch: expected {tuple(shape[kept:])} but got {old}")
    return (*shape[:kept], *new)


identity_transform = ComposeTransform([])
