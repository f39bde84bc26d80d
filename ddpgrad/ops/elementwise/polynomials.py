"""Orthogonal polynomials of any degree, by their recurrences: Chebyshev's, Hermite's, Laguerre's and Legendre's.

As in PyTorch they have no gradient; a degree is cut to an integer, and those of negative degree are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...backend.registry import backend_for
from ...core.tensor import Tensor
from ..dispatch.declare import TensorLike, op
from .special import _scipy

Formula = Callable[..., Any]

_RECURSIVE = 6  # up to which degree the recurrence costs less than cosines


class _Angular(NamedTuple):
    """A polynomial by the angle whose cosine is x, for -1 < x < 1; its values at 1, and without their sign at -1."""

    inside: Formula
    at_one: Formula
    at_minus_one: Formula


class _Family(NamedTuple):
    """The polynomials 1, first(x), and next(k, x, p, q) after the p and q of degrees k - 1 and k."""

    first: Formula
    next: Formula
    reference: Formula
    angular: _Angular | None = None
    limits: tuple[float, float] = (
        np.inf,
        np.inf,
    )  # the degrees up to which PyTorch computes in 32 and 64 bits


def _of_degree(F: Any, family: _Family, x: Any, n: Any) -> Any:
    limit = family.limits[x.dtype.itemsize > 4]
    n = F.trunc(F.where(n == n, n, -1))
    p, q = F.full_like(x, 1), family.first(x)
    out = F.where(n == 0, p, F.where(n == 1, q, F.full_like(q, 0)))
    steps = F.where(n > limit, 0, n)
    if family.angular is not None:
        known, size = n > _RECURSIVE, F.abs(x)
        angle = F.acos(F.where(size < 1, x, 0))
        sign = F.where(x > 0, 1, 1 - 2 * F.remainder(n, 2))
        ends = sign * F.where(x > 0, family.angular.at_one(n), family.angular.at_minus_one(n))
        value = F.where(size < 1, family.angular.inside(F, n, angle), ends)
        out = F.where(known & (size <= 1), value, out)
        steps = F.where(known & (size <= 1), 0, steps)
    for k in range(1, int(steps.max()) if steps.size else 0):
        p, q = q, family.next(k, x, p, q)
        out = F.where(steps == k + 1, q, out)
    return F.where(n > limit, np.nan, out)


def _declare(name: str, family: _Family, shifted: bool = False) -> Formula:
    """The op `name`, of 2 x - 1 if `shifted`."""

    def function(F: Any, input: TensorLike, n: TensorLike) -> Tensor:
        one = F.full_like(input if hasattr(input, "dtype") else n, 1)
        x, degree = one * input, one * n  # where one was a number, both are arrays
        if backend_for(x).kind == "meta":
            return x + degree
        return _of_degree(F, family, x + x - 1 if shifted else x, degree)

    def expected(x: Any, n: Any) -> Any:
        n = np.asarray(n, int)
        return np.where(n < 0, 0, family.reference(np.maximum(n, 0), 2 * x - 1 if shifted else x))

    function.__name__ = name
    function.__doc__ = f"The polynomial of degree `n` at each element of `input`: {name}."
    return op(
        promotion="float",
        samples=lambda rng: [
            ((rng.uniform(-1.5, 1.5, (4, 1)), np.arange(-1.0, 12)), {}),
            ((np.array([-1.0, 0.0, 0.3, 1.0]), 9.0), {}),
        ],
        reference=expected,
        method=False,
    )(function)


def _twice(k: int, x: Any, p: Any, q: Any) -> Any:
    return (x + x) * q - p


def _u(n: Any, x: Any) -> Any:
    return np.where(n < 0, 0, _scipy("eval_chebyu")(np.maximum(n, 0), x))


_CHEBYSHEV = {
    "t": _Family(
        lambda x: x, _twice, lambda n, x: _scipy("eval_chebyt")(n, x),
        _Angular(lambda F, n, a: F.cos(n * a), lambda n: n * 0 + 1, lambda n: n * 0 + 1),
    ),
    "u": _Family(
        lambda x: x + x, _twice, _u,
        _Angular(lambda F, n, a: F.sin((n + 1) * a) / F.sin(a), lambda n: n + 1, lambda n: n + 1),
    ),
    "v": _Family(
        lambda x: x + x - 1, _twice, lambda n, x: _u(n, x) - _u(n - 1, x),
        _Angular(lambda F, n, a: F.cos((n + 0.5) * a) / F.cos(a / 2), lambda n: n * 0 + 1, lambda n: n + n + 1),
    ),
    "w": _Family(
        lambda x: x + x + 1, _twice, lambda n, x: _u(n, x) + _u(n - 1, x),
        _Angular(lambda F, n, a: F.sin((n + 0.5) * a) / F.sin(a / 2), lambda n: n + n + 1, lambda n: n * 0 + 1),
    ),
}  # fmt: skip

chebyshev_polynomial_t = _declare("chebyshev_polynomial_t", _CHEBYSHEV["t"])
chebyshev_polynomial_u = _declare("chebyshev_polynomial_u", _CHEBYSHEV["u"])
chebyshev_polynomial_v = _declare("chebyshev_polynomial_v", _CHEBYSHEV["v"])
chebyshev_polynomial_w = _declare("chebyshev_polynomial_w", _CHEBYSHEV["w"])
shifted_chebyshev_polynomial_t = _declare("shifted_chebyshev_polynomial_t", _CHEBYSHEV["t"], True)
shifted_chebyshev_polynomial_u = _declare("shifted_chebyshev_polynomial_u", _CHEBYSHEV["u"], True)
shifted_chebyshev_polynomial_v = _declare("shifted_chebyshev_polynomial_v", _CHEBYSHEV["v"], True)
shifted_chebyshev_polynomial_w = _declare("shifted_chebyshev_polynomial_w", _CHEBYSHEV["w"], True)

hermite_polynomial_h = _declare(
    "hermite_polynomial_h",
    _Family(
        lambda x: x + x, lambda k, x, p, q: (x + x) * q - 2 * k * p, lambda n, x: _scipy("eval_hermite")(n, x),
        limits=(128, 512),
    ),
)  # fmt: skip
hermite_polynomial_he = _declare(
    "hermite_polynomial_he",
    _Family(
        lambda x: x, lambda k, x, p, q: x * q - k * p, lambda n, x: _scipy("eval_hermitenorm")(n, x),
        limits=(128, 512),
    ),
)  # fmt: skip
laguerre_polynomial_l = _declare(
    "laguerre_polynomial_l",
    _Family(
        lambda x: 1 - x,
        lambda k, x, p, q: ((k + k + (1 - x)) * q - k * p) / (k + 1),
        lambda n, x: _scipy("eval_laguerre")(n, x),
    ),
)
legendre_polynomial_p = _declare(
    "legendre_polynomial_p",
    _Family(
        lambda x: x,
        lambda k, x, p, q: ((k + k + 1) * x * q - k * p) / (k + 1),
        lambda n, x: _scipy("eval_legendre")(n, x),
    ),
)
