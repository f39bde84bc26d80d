"""`torch.special`: special functions, some of which have another name at the top."""

from __future__ import annotations

from .ops.elementwise.activation import log_softmax, softmax
from .ops.elementwise.special import (
    bessel_j0,
    bessel_j1,
    bessel_y0,
    bessel_y1,
    digamma,
    entr,
    erf,
    erfc,
    erfcx,
    erfinv,
    i0,
    i0e,
    i1,
    i1e,
    log_ndtr,
    logit,
    modified_bessel_k0,
    modified_bessel_k1,
    ndtr,
    ndtri,
    polygamma,
    scaled_modified_bessel_k0,
    scaled_modified_bessel_k1,
    xlog1py,
    xlogy,
    zeta,
)
from .ops.elementwise.special import igamma as gammainc
from .ops.elementwise.special import igammac as gammaincc
from .ops.elementwise.special import lgamma as gammaln
from .ops.elementwise.special import mvlgamma as multigammaln
from .ops.elementwise.unary import exp2, expm1, log1p, round, sinc
from .ops.elementwise.unary import sigmoid as expit
from .ops.reduction.reduce import logsumexp

psi = digamma
modified_bessel_i0, modified_bessel_i1 = i0, i1

__all__ = [
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2",
    "expit", "expm1", "gammainc", "gammaincc", "gammaln", "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax",
    "logit", "logsumexp", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1",
    "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
    "sinc", "softmax", "xlog1py", "xlogy", "zeta",
]  # fmt: skip
