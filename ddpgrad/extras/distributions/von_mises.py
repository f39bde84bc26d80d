"""The von Mises distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ... import Tensor, acos, cos, log, no_grad, rand, sign, sqrt, where
from ...ops.elementwise.special import i0e, i1e
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, same_as

_SMALL = 1e-5  # of concentrations for which the formula of the proposal loses its digits


class VonMises(Distribution):
    """Angles in [-π, π) around `loc`, with a density proportional to exp(concentration * cos(angle - loc)).

    Draws: Best and Fisher, Applied Statistics 28 (1979), page 152.
    """

    arg_constraints: ClassVar = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """The direction of the mean of the points on the circle."""
        return self.loc

    mode: Any = same_as("loc")

    @property
    def variance(self) -> Tensor:
        """1 less the length of the mean of the points on the circle."""
        return 1 - i1e(self.concentration) / i0e(self.concentration)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            k = self.concentration.double().expand(shape)
            angle = self._around_zero(k, self._proposal(k))
            angle = (angle + math.pi + self.loc.double()) % (2 * math.pi) - math.pi
            return angle.to(self.loc.dtype)

    @staticmethod
    def _proposal(k: Tensor) -> Tensor:
        tau = 1 + sqrt(1 + 4 * k.pow(2))
        rho = (tau - sqrt(2 * tau)) / (2 * k)
        return where(k < _SMALL, 1 / k + k, (1 + rho.pow(2)) / (2 * rho))

    @staticmethod
    def _around_zero(k: Tensor, proposal: Tensor) -> Tensor:
        angle, done = k.new_zeros(k.shape), k < 0
        while not done.all():
            first, second, third = rand((3, *k.shape), dtype=k.dtype, device=k.device).unbind()
            z = cos(math.pi * first)
            f = (1 + proposal * z) / (proposal + z)
            c = k * (proposal - f)
            accepted = (c * (2 - c) - second > 0) | (log(c / second) + 1 - c >= 0)
            angle = where(accepted, sign(third - 0.5) * acos(f), angle)
            done = done | accepted
        return angle

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        k = self.concentration
        # i0e is the Bessel function less its growth, exp(k).
        return k * (cos(value - self.loc) - 1) - math.log(2 * math.pi) - log(i0e(k))
