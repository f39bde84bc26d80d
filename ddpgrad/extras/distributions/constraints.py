"""Constraints: the sets in which parameters and samples of distributions lie."""

from __future__ import annotations

from typing import Any

from ... import Tensor, tensor, tril
from ...linalg import cholesky_ex


class Constraint:
    """A set of values. `event_dim`: how many dimensions at the end make up one value."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Any) -> Tensor:
        """For each value whether it lies in the set: a bool tensor of `value`'s shape without its event dimensions."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}()"


class _Real(Constraint):
    def check(self, value: Any) -> Tensor:
        return value == value  # only nan differs from itself


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Any) -> Tensor:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Any) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class interval(Constraint):
    """Numbers between two bounds, which belong to the set."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def check(self, value: Any) -> Tensor:
        return (self.lower_bound <= value) & (value <= self.upper_bound)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lower_bound={self.lower_bound}, upper_bound={self.upper_bound})"


class half_open_interval(interval):
    """Numbers between two bounds, of which only the lower one belongs to the set."""

    def check(self, value: Any) -> Tensor:
        return (self.lower_bound <= value) & (value < self.upper_bound)


class integer_interval(interval):
    """Integers between two bounds, which belong to the set."""

    is_discrete = True

    def check(self, value: Any) -> Tensor:
        return (value % 1 == 0) & super().check(value)


class greater_than(Constraint):
    """Numbers above a bound."""

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Any) -> Tensor:
        return self.lower_bound < value

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lower_bound={self.lower_bound})"


class greater_than_eq(greater_than):
    """Numbers from a bound on."""

    def check(self, value: Any) -> Tensor:
        return self.lower_bound <= value


class integer_greater_than(greater_than):
    """Integers from a bound on."""

    is_discrete = True

    def check(self, value: Any) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)


class less_than(Constraint):
    """Numbers below a bound."""

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Tensor:
        return value < self.upper_bound

    def __repr__(self) -> str:
        return f"{type(self).__name__}(upper_bound={self.upper_bound})"


class multinomial(Constraint):
    """Counts of categories that sum up to at most `upper_bound`."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Any) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Tensor:
        return (tril(value) == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Any) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _PositiveDefinite(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Tensor:
        if not all(n > 0 for n in value.shape[-2:]):
            return tensor(True)
        symmetric = value.isclose(value.mT, atol=1e-6).flatten(-2).all(-1)
        return symmetric & (cholesky_ex(value.detach()).info == 0)


class independent(Constraint):
    """`base` for each of the values that the last dimensions of a sample hold together."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Any) -> Tensor:
        inside = self.base_constraint.check(value)
        return (
            inside.flatten(-self.reinterpreted_batch_ndims).all(-1)
            if self.reinterpreted_batch_ndims
            else inside
        )

    def __repr__(self) -> str:
        return f"Independent({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class _Dependent(Constraint):
    """A set that depends on parameters; what it is, only an instance can tell."""

    def __init__(self, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def check(self, value: Any) -> Tensor:
        raise ValueError("whether a value lies in a dependent constraint is known to an instance only")


class dependent_property(property):
    """A property that returns a constraint which depends on the instance's parameters."""

    def __init__(self, fn: Any = None, *, is_discrete: bool = False, event_dim: int = 0) -> None:
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Any) -> dependent_property:
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: object) -> bool:
    """Whether a constraint is known to an instance only."""
    return isinstance(constraint, (_Dependent, dependent_property))


dependent = _Dependent()
real = _Real()
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = integer_greater_than(0)
positive_integer = integer_greater_than(1)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
simplex = _Simplex()
real_vector = independent(real, 1)
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
positive_definite = _PositiveDefinite()
