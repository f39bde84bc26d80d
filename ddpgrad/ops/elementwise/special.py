"""Special functions: the error function, gamma and Bessel functions, and related ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..dispatch.declare import Rule, TensorLike, op, primitive
from ..dispatch.explain import no_rule
from ..dispatch.node import node_name
from ..dispatch.samples import one, two
from ..dispatch.tensor_function import takes_out, tensor_function
from ..dispatch.vocabulary import VOCABULARY as F

Unary = Callable[[Tensor], Tensor]


def _scipy(name: str) -> Callable[..., Any]:
    """SciPy's function of that name, imported when it is first called."""
    return lambda *args: getattr(import_module("scipy.special"), name)(*args)


def _function(
    name: str,
    rule: Rule | None,
    scipy: str = "",
    low: float = -2.0,
    high: float = 2.0,
    *,
    method: bool = False,
) -> Unary:
    """Declare the primitive `name` of one tensor, which SciPy calls `scipy`, with gradient `rule(F, g, …)`."""

    def function(F: Any, input: Tensor) -> Tensor: ...

    function.__name__ = name
    function.__doc__ = f"Elementwise {name}."
    return primitive(
        grads={"input": rule} if rule else None,
        promotion="float",
        samples=one(low, high),
        reference=_scipy(scipy or name),
        method=method,
        inplace=method,
        grad_name=node_name(name if method else f"special_{name}"),
    )(function)


def _gauss(F: Any, x: Any) -> Any:
    """exp(-x²)."""
    return F.exp(-x * x)


_TWO_BY_ROOT_PI = 2 / math.sqrt(math.pi)
_ROOT_TWO_PI = math.sqrt(2 * math.pi)

erf = _function("erf", lambda F, g, input: g * _TWO_BY_ROOT_PI * _gauss(F, input), method=True)
erfc = _function("erfc", lambda F, g, input: g * -_TWO_BY_ROOT_PI * _gauss(F, input), method=True)
erfinv = _function(
    "erfinv",
    lambda F, g, input: g * F.exp(F.erfinv(input) ** 2) / _TWO_BY_ROOT_PI,
    "",
    -0.9,
    0.9,
    method=True,
)
erfcx = _function("erfcx", lambda F, g, out, input: g * (2 * input * out - _TWO_BY_ROOT_PI))
ndtr = _function("ndtr", lambda F, g, input: g * F.exp(-0.5 * input * input) / _ROOT_TWO_PI)
ndtri = _function("ndtri", lambda F, g, out: g * F.exp(0.5 * out * out) * _ROOT_TWO_PI, "", 0.1, 0.9)
log_ndtr = _function(
    "log_ndtr", lambda F, g, input: g * (math.sqrt(2 / math.pi) / F.erfcx(input * -math.sqrt(0.5)))
)
entr = _function("entr", lambda F, g, input: g * -(1 + F.log(input)), "", 0.2, 2.0)
lgamma = _function("lgamma", lambda F, g, input: g * F.digamma(input), "gammaln", 0.3, 3.0, method=True)
digamma = _function("digamma", lambda F, g, input: g * F.polygamma(input, 1), "psi", 0.3, 3.0, method=True)
i0 = _function("i0", lambda F, g, input: g * F.i1(input), method=True)
i0e = _function("i0e", lambda F, g, out, input: g * (F.i1e(input) - F.sgn(input) * out))


def _per_input(F: Any, out: Any, input: Any) -> Any:
    """out / input for an odd `out`, and its slope at 0, which is a half for the Bessel functions of order 1."""
    at_zero = input == 0
    return F.where(at_zero, F.full_like(input, 0.5), out / F.where(at_zero, F.full_like(input, 1), input))


i1 = _function("i1", lambda F, g, out, input: g * (F.i0(input) - _per_input(F, out, input)))
i1e = _function(
    "i1e", lambda F, g, out, input: g * (F.i0e(input) - F.sgn(input) * out - _per_input(F, out, input))
)
bessel_j0, bessel_j1 = _function("bessel_j0", None, "j0"), _function("bessel_j1", None, "j1")
bessel_y0 = _function("bessel_y0", None, "y0", 0.2, 3.0)
bessel_y1 = _function("bessel_y1", None, "y1", 0.2, 3.0)
modified_bessel_k0 = _function("modified_bessel_k0", None, "k0", 0.2, 3.0)
modified_bessel_k1 = _function("modified_bessel_k1", None, "k1", 0.2, 3.0)
scaled_modified_bessel_k0 = _function("scaled_modified_bessel_k0", None, "k0e", 0.2, 3.0)
scaled_modified_bessel_k1 = _function("scaled_modified_bessel_k1", None, "k1e", 0.2, 3.0)


@primitive(promotion="float", samples=one(-8.0, 3.0), reference=lambda x: _scipy("airy")(x)[0], method=False)
def airy_ai(F: Any, input: Tensor) -> Tensor:
    """Airy's function Ai."""
    ...


@op(promotion="float", samples=one(-8.0, 8.0), reference=lambda x: _scipy("spherical_jn")(0, x), method=False)
def spherical_bessel_j0(F: Any, input: Tensor) -> Tensor:
    """sin(x) / x, and 1 at 0."""
    x: Any = input
    value = F.sin(x) / F.where(x == 0, 1, x)
    return F.where(x == 0, 1, F.where(F.abs(x) == math.inf, 0, value))


# -- two operands --------------------------------------------------------------------------


@takes_out
def _polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of digamma at `input`."""
    if n < 0:
        raise RuntimeError(f"polygamma(n, x): does not support negative n, got {n}")
    return F.polygamma(input, n)


@op(
    public=_polygamma,
    grads={"input": lambda F, g, input, n: g * F.polygamma(input, n + 1)},
    promotion="float",
    promoted=("input",),
    samples=lambda rng: [((rng.uniform(0.3, 3.0, (2, 3)), n), {}) for n in range(4)],
    reference=lambda x, n: _scipy("polygamma")(n, x),
    method=False,  # whose order of arguments is the op's
)
def polygamma(F: Any, input: Tensor, n: int) -> Tensor:
    """The n-th derivative of digamma."""
    if n == 0:
        return F.digamma(input)
    return (-1.0) ** (n + 1) * math.factorial(n) * F.zeta(n + 1.0, input)


@primitive(
    grads={
        "input": no_rule("zeta: input"),
        "other": lambda F, g, input, other: g * -input * F.zeta(input + 1, other),
    },
    promotion="float",
    method=False,
)
def zeta(F: Any, input: TensorLike, other: TensorLike) -> Tensor:
    """Hurwitz's zeta function: the sum of (k + other)**-input over k = 0, 1, …"""
    ...


def _gamma_density(F: Any, a: Any, x: Any) -> Any:
    """The derivative of the regularized lower incomplete gamma function by x."""
    return F.exp((a - 1) * F.log(x) - x - F.lgamma(a))


@primitive(
    grads={
        "input": no_rule("igamma: input"),
        "other": lambda F, g, input, other: g * _gamma_density(F, input, other),
    },
    promotion="float",
    inplace=True,
)
def igamma(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """The regularized lower incomplete gamma function P(input, other)."""
    ...


@primitive(
    grads={
        "input": no_rule("igammac: input"),
        "other": lambda F, g, input, other: g * -_gamma_density(F, input, other),
    },
    promotion="float",
    inplace=True,
)
def igammac(F: Any, input: Tensor, other: Tensor) -> Tensor:
    """The regularized upper incomplete gamma function Q(input, other)."""
    ...


def _times_log(F: Any, product: Any, g: Any, input: Any, other: Any, limit: float) -> Any:
    """g * log(other), but 0 where `g` is, and where `input` is 0 and `other` out of the logarithm's domain."""
    slope = product(g, other)
    return F.where((input == 0) & (other <= limit), F.full_like(slope, 0), slope)


@primitive(
    grads={
        "input": lambda F, g, input, other: _times_log(F, F.xlogy, g, input, other, 0),
        "other": lambda F, g, input, other: g * input / other,
    },
    promotion="float",
    samples=two(0.3, 2.0),
    reference=_scipy("xlogy"),
    inplace=True,
)
def xlogy(F: Any, input: TensorLike, other: TensorLike) -> Tensor:
    """input * log(other), and 0 where input is 0 and other is not nan."""
    ...


@primitive(
    grads={
        "input": lambda F, g, input, other: _times_log(F, F.xlog1py, g, input, other, -1),
        "other": lambda F, g, input, other: g * input / (other + 1),
    },
    promotion="float",
    samples=two(0.3, 2.0),
    reference=_scipy("xlog1py"),
    method=False,
)
def xlog1py(F: Any, input: TensorLike, other: TensorLike) -> Tensor:
    """input * log(1 + other), and 0 where input is 0 and other is not nan."""
    ...


# -- made of others ------------------------------------------------------------------------


def _logit_rule(F: Any, g: Any, input: Any, eps: float | None) -> Any:
    low, high = (0.0, 1.0) if eps is None else (eps, 1.0 - eps)
    inside = F.logical_and(input >= low, input <= high)
    outside = F.full_like(input, math.nan if eps is None else 0.0)
    return F.where(inside, g / (input * (1 - input)), outside)


@op(
    grads={"input": _logit_rule},
    promotion="float",
    promoted=("input",),
    samples=lambda rng: [((rng.uniform(0.1, 0.9, (2, 3)),), {}), ((rng.uniform(-0.2, 1.2, 7), 0.1), {})],
    reference=lambda x, eps=0.0: _scipy("logit")(np.clip(x, eps, 1 - eps)),
    inplace=True,
)
def logit(F: Any, input: Tensor, eps: float | None = None) -> Tensor:
    """log(input / (1 - input)), the input limited to [eps, 1 - eps] if eps is given."""
    x = input if eps is None else F.clamp(input, eps, 1 - eps)
    return F.log(x / (1 - x))


@tensor_function(inplace=True, out=True)
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension `p`."""
    if p < 1:
        raise RuntimeError(f"mvlgamma(): p has to be greater than or equal to 1, got {p}")
    total = lgamma(input)
    for k in range(1, p):
        total = total + lgamma(input - k / 2)
    return total + p * (p - 1) / 4 * math.log(math.pi)
