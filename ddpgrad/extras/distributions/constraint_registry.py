"""Transforms from all real numbers to what a constraint allows, by the constraint's type: a table that users can extend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import constraints, transforms
from .constraints import Constraint
from .transforms import Transform

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """Types of constraints, and for each a function that makes the transform for a constraint of it."""

    def __init__(self) -> None:
        self._registry: dict[type[Constraint], Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Use `factory(constraint)` for constraints of the type of `constraint`, which is a type itself or one of it.

        Without a factory it decorates one. TypeError for what is no type of constraints.
        """
        if factory is None:
            return lambda given: self.register(constraint, given)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, Constraint)):
            raise TypeError(
                f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """The transform for `constraint`; NotImplementedError where none is known."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
"""Bijections, along which densities can be carried."""
transform_to = ConstraintRegistry()
"""Transforms that need not be bijections: for optimization, where few numbers that are well conditioned do more."""


def _from_exp(bound: Any, scale: int) -> Transform:
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(bound, scale)])


def _between(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, (int, float)) and low == 0 and isinstance(high, (int, float)) and high == 1:
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform(
        [transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)]
    )


def _register(registry: ConstraintRegistry) -> None:
    """What both registries have."""
    rows: dict[Any, Factory] = {
        constraints.real: lambda _: transforms.identity_transform,
        constraints.independent: lambda c: transforms.IndependentTransform(
            registry(c.base_constraint), c.reinterpreted_batch_ndims
        ),
        constraints.greater_than: lambda c: _from_exp(c.lower_bound, 1),
        constraints.greater_than_eq: lambda c: _from_exp(c.lower_bound, 1),
        constraints.less_than: lambda c: _from_exp(c.upper_bound, -1),
        constraints.interval: _between,
        constraints.half_open_interval: _between,
        constraints.corr_cholesky: lambda _: transforms.CorrCholeskyTransform(),
        constraints.cat: lambda c: transforms.CatTransform(
            [registry(part) for part in c.cseq], c.dim, c.lengths
        ),
        constraints.stack: lambda c: transforms.StackTransform([registry(part) for part in c.cseq], c.dim),
    }
    for constraint, factory in rows.items():
        registry.register(constraint, factory)


_register(biject_to)
_register(transform_to)
biject_to.register(constraints.simplex, lambda _: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda _: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda _: transforms.LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda _: transforms.PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda _: transforms.PositiveDefiniteTransform())
