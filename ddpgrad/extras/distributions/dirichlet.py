"""The Dirichlet distribution, with gradients of its draws, and the beta distribution, which is one of two categories."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ... import Tensor, digamma, lgamma, stack, xlogy
from ...autograd.function import Function, once_differentiable
from ...ops.creation.factories import finish
from ...random import rank_generator
from . import constraints
from .exp_family import ExponentialFamily
from .utils import broadcast_all, formula


def _sample_dirichlet(input: Tensor, generator: Any = None) -> Tensor:
    """A draw for each row of weights, as `torch._sample_dirichlet`; from the default generator.

    It is made in float64, where the numbers that are normalized do not vanish, and kept away from 0 and 1.
    """
    if generator is not None:
        raise NotImplementedError("_sample_dirichlet(): draws come from the default generator here")
    gamma = rank_generator().standard_gamma(input.numpy(force=True).astype(np.float64))
    gamma = np.maximum(gamma, np.finfo(np.float64).tiny)  # a row of zeros has no shares
    kind = np.dtype(input.dtype.numpy)
    shares = np.clip(
        gamma / gamma.sum(-1, keepdims=True), np.finfo(kind).tiny, np.nextafter(kind.type(1), kind.type(0))
    )
    return finish(shares.astype(kind), input.device)


def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """-(dF/d alpha) / (dF/dx) / (1 - x) of the distribution function F of Beta(alpha, total - alpha) at x."""
    a, sums, at = (t.numpy(force=True).astype(np.float64) for t in (alpha, total, x))
    return finish(beta_slope(*np.broadcast_arrays(at, a, sums - a)).astype(x.dtype.numpy), x.device)


def beta_slope(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """-(dF/da) / (dF/dx) / (1 - x) for F = I_x(a, b), the distribution function of Beta(a, b); float64.

    Below the middle, F is x**a (1-x)**b / (a B(a, b)) times the sum over n of the products of (a+b+k) x / (a+1+k), k < n.
    Above it, 1 - F is the same with 1-x for x and a and b exchanged. Each is differentiated term by term, in units of
    its first term (https://dlmf.nist.gov/8.17#E8).
    """
    below = x <= (a + 1) / (a + b + 2)
    near, far = np.where(below, x, 1 - x), np.where(below, a, b)
    growth = np.log(x) + digamma(finish(a + b)).numpy() - digamma(finish(np.where(below, a + 1, a))).numpy()
    total, term, k = growth.copy(), np.ones_like(growth), 0
    while True:
        term *= near * (a + b + k) / (far + 1 + k)
        growth += 1 / (a + b + k) - np.where(below, 1 / (a + 1 + k), 0)
        total += term * growth
        k += 1
        shrinking = near * (a + b + k) < far + 1 + k
        if (shrinking & (term * np.abs(growth) <= 1e-16 * np.abs(total)) | ~np.isfinite(total)).all():
            return np.where(below, -total, total) * x / far


def _Dirichlet_backward(x: Tensor, concentration: Tensor, grad_output: Tensor) -> Tensor:
    """The gradient to `concentration` of draws x: each moves along the line from its corner, by its marginal's function.

    Source: https://arxiv.org/abs/1806.01851
    """
    total = concentration.sum(-1, True).expand(concentration.shape)
    slope = _dirichlet_grad(x, concentration, total)
    return slope * (grad_output - (x * grad_output).sum(-1, True))


class _Dirichlet(Function):
    @staticmethod
    def forward(ctx: Any, concentration: Tensor) -> Tensor:
        x = _sample_dirichlet(concentration)
        ctx.save_for_backward(x, concentration)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x, concentration = ctx.saved_tensors
        return _Dirichlet_backward(x, concentration, grad_output)


class Dirichlet(ExponentialFamily):
    """Probabilities of K categories, with weights `concentration` (..., K)."""

    arg_constraints: ClassVar = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    mean: Any = formula(lambda self: self.concentration / self.concentration.sum(-1, True))

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        first = mode.new_zeros(mode.shape)
        first[..., 0] = 1.0
        corners = (self.concentration < 1).all(
            -1, keepdim=True
        )  # then every corner is a peak, and the first is given
        return first.where(corners, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return _Dirichlet.apply(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        a = self.concentration
        return xlogy(a - 1.0, value).sum(-1) + lgamma(a.sum(-1)) - lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a, k = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        return (
            lgamma(a).sum(-1)
            - lgamma(total)
            - (k - total) * digamma(total)
            - ((a - 1.0) * digamma(a)).sum(-1)
        )

    _natural_params: Any = formula(lambda self: (self.concentration,))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return lgamma(x).sum(-1) - lgamma(x.sum(-1))


class Beta(ExponentialFamily):
    """The beta distribution: x**(concentration1 - 1) * (1 - x)**(concentration0 - 1), normalized."""

    arg_constraints: ClassVar = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        both = stack(broadcast_all(concentration1, concentration0), -1)
        self._dirichlet = Dirichlet(both, validate_args=validate_args)
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    concentration1: Any = formula(lambda self: self._dirichlet.concentration[..., 0])
    concentration0: Any = formula(lambda self: self._dirichlet.concentration[..., 1])
    mean: Any = formula(lambda self: self.concentration1 / (self.concentration1 + self.concentration0))
    mode: Any = formula(lambda self: self._dirichlet.mode[..., 0])

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return self._dirichlet.log_prob(stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    _natural_params: Any = formula(lambda self: (self.concentration1, self.concentration0))

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return lgamma(x) + lgamma(y) - lgamma(x + y)
