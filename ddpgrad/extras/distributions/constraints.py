"""Constraints: the sets in which parameters and samples of distributions lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import Tensor, finfo, full, tril
from ... import cat as join
from ... import stack as pile
from ...linalg import cholesky_ex, eigvalsh


class Constraint:
    """A set of values. `event_dim`: how many dimensions at the end make up one value."""

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Any) -> Tensor:
        """For each value whether it lies in the set: a bool tensor of `value`'s shape without its event dimensions."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}({self._said()})"

    def _said(self) -> str:
        """What stands between the parentheses."""
        return ", ".join(f"{name}={value}" for name, value in vars(self).items() if name.endswith("_bound"))


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


class _Interval(Constraint):
    """Numbers between two bounds, which belong to the set."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def check(self, value: Any) -> Tensor:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Interval):
    """Numbers between two bounds, of which only the lower one belongs to the set."""

    def check(self, value: Any) -> Tensor:
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _IntegerInterval(_Interval):
    """Integers between two bounds, which belong to the set."""

    is_discrete = True

    def check(self, value: Any) -> Tensor:
        return (value % 1 == 0) & super().check(value)


class _GreaterThan(Constraint):
    """Numbers above a bound."""

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Any) -> Tensor:
        return self.lower_bound < value


class _GreaterThanEq(_GreaterThan):
    """Numbers from a bound on."""

    def check(self, value: Any) -> Tensor:
        return self.lower_bound <= value


class _IntegerGreaterThan(_GreaterThan):
    """Integers from a bound on."""

    is_discrete = True

    def check(self, value: Any) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _IntegerLessThan(Constraint):
    """Integers up to a bound."""

    is_discrete = True

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Tensor:
        return (value % 1 == 0) & (value <= self.upper_bound)


class _LessThan(Constraint):
    """Numbers below a bound."""

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Tensor:
        return value < self.upper_bound


class _Multinomial(Constraint):
    """Counts of categories that sum up to at most `upper_bound`."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def _said(self) -> str:
        return ""

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


class _CorrCholesky(Constraint):
    """Cholesky factors of correlation matrices: rows of length 1."""

    event_dim = 2

    def check(self, value: Any) -> Tensor:
        tolerance = finfo(value.dtype).eps * value.shape[-1] * 10  # 10: of a row's sum of squares
        rows = (value.detach().pow(2).sum(-1) - 1).abs().le(tolerance).all(-1)
        return rows & lower_cholesky.check(value)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Tensor:
        return full(value.shape[:-2], value.shape[-2] == value.shape[-1], device=value.device)


class _Symmetric(_Square):
    def check(self, value: Any) -> Tensor:
        square = super().check(value)
        if not square.all():
            return square
        return value.isclose(value.mT, atol=1e-6).flatten(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Any) -> Tensor:
        symmetric = super().check(value)
        return (eigvalsh(value).ge(0).all(-1)) if symmetric.all() else symmetric


class _PositiveDefinite(_Symmetric):
    def check(self, value: Any) -> Tensor:
        symmetric = super().check(value)
        return cholesky_ex(value.detach()).info.eq(0) if symmetric.all() else symmetric


class _IndependentConstraint(Constraint):
    """`base_constraint` for each of the values that the last dimensions of a sample hold together."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Any) -> Tensor:
        inside = self.base_constraint.check(value)
        if inside.ndim < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        return (
            inside.flatten(-self.reinterpreted_batch_ndims).all(-1)
            if self.reinterpreted_batch_ndims
            else inside
        )

    def _said(self) -> str:
        return f"{self.base_constraint!r}, {self.reinterpreted_batch_ndims}"


class MixtureSameFamilyConstraint(Constraint):
    """Values that lie in the set of every component; `base_constraint` is that of the components, whose batch ends with K."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint
        self.is_discrete, self.event_dim = base_constraint.is_discrete, base_constraint.event_dim

    def check(self, value: Any) -> Tensor:
        return self.base_constraint.check(value.unsqueeze(-1 - self.event_dim)).all(-1)

    def _said(self) -> str:
        return repr(self.base_constraint)


class _Joined(Constraint):
    """Sets for the parts of a value along the dimension `dim`; AssertionError, as in PyTorch, for what is no constraint."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        self.cseq, self.dim = list(cseq), dim
        if not all(isinstance(c, Constraint) for c in self.cseq):
            raise AssertionError("All elements of cseq must be Constraint instances")
        self.is_discrete = any(c.is_discrete for c in self.cseq)
        self.event_dim = max(c.event_dim for c in self.cseq)


class _Cat(_Joined):
    """Parts of the given `lengths`, 1 each if not given, one after the other."""

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match constraints ({len(self.cseq)})")

    def check(self, value: Any) -> Tensor:
        parts = value.split(self.lengths, self.dim)
        return join([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class _Stack(_Joined):
    """Slices, one for each constraint."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        super().__init__(cseq, dim)
        self.event_dim += self.dim + self.event_dim < 0  # the slices are within an event

    def check(self, value: Any) -> Tensor:
        parts = value.unbind(self.dim)
        return pile([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class _Dependent(Constraint):
    """A set that depends on parameters; what it is, only an instance can tell."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:
        """Whether the set is discrete; NotImplementedError if only an instance knows."""
        return _known(self._is_discrete, "is_discrete")

    @property
    def event_dim(self) -> int:
        """How many dimensions make up one value; NotImplementedError if only an instance knows."""
        return _known(self._event_dim, "event_dim")

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> Any:
        """The same with what is known of it."""
        given = (is_discrete, self._is_discrete), (event_dim, self._event_dim)
        discrete, dim = (kept if new is NotImplemented else new for new, kept in given)
        return _Dependent(is_discrete=discrete, event_dim=dim)

    def check(self, value: Any) -> Tensor:
        raise ValueError("whether a value lies in a dependent constraint is known to an instance only")


class _DependentProperty(property, _Dependent):
    """A property that returns a constraint which depends on the instance's parameters."""

    def __init__(
        self, fn: Any = None, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented
    ) -> None:
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # a decorator
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def _known(value: Any, name: str) -> Any:
    if value is NotImplemented:
        raise NotImplementedError(f".{name} cannot be determined statically")
    return value


def is_dependent(constraint: object) -> bool:
    """Whether a constraint is known to an instance only."""
    return isinstance(constraint, _Dependent)


interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
greater_than, greater_than_eq, integer_greater_than = _GreaterThan, _GreaterThanEq, _IntegerGreaterThan
less_than, multinomial, independent = _LessThan, _Multinomial, _IndependentConstraint
cat, stack, dependent_property = _Cat, _Stack, _DependentProperty
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
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent",
    "dependent_property", "greater_than", "greater_than_eq", "half_open_interval", "independent",
    "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky", "lower_triangular",
    "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite",
    "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square", "stack",
    "symmetric", "unit_interval",
]  # fmt: skip
