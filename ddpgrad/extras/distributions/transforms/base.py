"""Transform: the base of all transforms, with its cache and its inverse."""

from __future__ import annotations

import copy
import weakref
from typing import Any

from ....core.tensor import Tensor
from .. import constraints
from ..utils import same_as, unsaid


class Transform:
    """y = `_call(x)`, x = `_inverse(y)`, and log |dy/dx| = `log_abs_det_jacobian(x, y)`, which classes define.

    domain, codomain: constraints, whose event dimensions say how many dimensions the Jacobian covers.
    bijective: whether `_inverse` gives back what went in. sign: of dy/dx, for elementwise
    bijections; NotImplementedError for others.
    cache_size: 1 keeps the last pair, so that the inverse of what was just computed is exact; 0 keeps none.
    """

    bijective: Any = False
    domain: Any = constraints.real
    codomain: Any = constraints.real
    sign: Any = unsaid("sign")

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError(f"cache_size must be 0 or 1, got {cache_size}")
        self._cache_size = cache_size
        self._cached_x_y: tuple[Any, Any] = (None, None)
        self._inv: Any = None

    @property
    def inv(self) -> Transform:
        """The inverse, as a transform."""
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = self._make_inverse()
            self._inv = weakref.ref(inverse)
        return inverse

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles take: all but the inverse, which belongs to this transform."""
        return self.__dict__ | {"_inv": None}

    def _make_inverse(self) -> Transform:
        return _InverseTransform(self)

    @property
    def event_dim(self) -> int:
        """How many dimensions make up one event, before and after; ValueError where these differ."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")
        return self.domain.event_dim

    def with_cache(self, cache_size: int = 1) -> Any:
        """The same transform with that cache."""
        if self._cache_size == cache_size:
            return self
        new = copy.copy(self)
        Transform.__init__(new, cache_size)
        return new

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._call(x)
        if x is not self._cached_x_y[0]:
            self._cached_x_y = (x, self._call(x))
        return self._cached_x_y[1]

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size == 0:
            return self._inverse(y)
        if y is not self._cached_x_y[1]:
            self._cached_x_y = (self._inverse(y), y)
        return self._cached_x_y[0]

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _call")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy/dx|, without the event dimensions of `domain`."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def forward_shape(self, shape: Any) -> Any:
        """The shape that an input of `shape` is turned into."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of the input for an output of `shape`."""
        return shape

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and type(self).__init__ is Transform.__init__)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv = transform

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    domain = same_as("_inv.codomain")
    codomain = same_as("_inv.domain")
    bijective = same_as("_inv.bijective")
    sign = same_as("_inv.sign")
    inv: Any = same_as("_inv")

    def with_cache(self, cache_size: int = 1) -> Any:
        return self._inv.with_cache(cache_size).inv

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = Transform.__hash__

    def __repr__(self) -> str:
        return f"_InverseTransform({self._inv!r})"
