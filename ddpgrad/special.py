"""`torch.special`: special functions, some of which have another name at the top."""

from .ops.elementwise import activation as _activation
from .ops.elementwise import polynomials as _polynomials
from .ops.elementwise import special as _special
from .ops.elementwise import unary as _unary
from .ops.reduction import reduce as _reduce

airy_ai = _special.airy_ai
bessel_j0 = _special.bessel_j0
bessel_j1 = _special.bessel_j1
bessel_y0 = _special.bessel_y0
bessel_y1 = _special.bessel_y1
chebyshev_polynomial_t = _polynomials.chebyshev_polynomial_t
chebyshev_polynomial_u = _polynomials.chebyshev_polynomial_u
chebyshev_polynomial_v = _polynomials.chebyshev_polynomial_v
chebyshev_polynomial_w = _polynomials.chebyshev_polynomial_w
digamma = _special.digamma
entr = _special.entr
erf = _special.erf
erfc = _special.erfc
erfcx = _special.erfcx
erfinv = _special.erfinv
exp2 = _unary.exp2
expit = _unary.sigmoid
expm1 = _unary.expm1
gammainc = _special.igamma
gammaincc = _special.igammac
gammaln = _special.lgamma
hermite_polynomial_h = _polynomials.hermite_polynomial_h
hermite_polynomial_he = _polynomials.hermite_polynomial_he
i0 = _special.i0
i0e = _special.i0e
i1 = _special.i1
i1e = _special.i1e
laguerre_polynomial_l = _polynomials.laguerre_polynomial_l
legendre_polynomial_p = _polynomials.legendre_polynomial_p
log1p = _unary.log1p
log_ndtr = _special.log_ndtr
log_softmax = _activation.log_softmax
logit = _special.logit
logsumexp = _reduce.logsumexp
modified_bessel_i0 = _special.i0
modified_bessel_i1 = _special.i1
modified_bessel_k0 = _special.modified_bessel_k0
modified_bessel_k1 = _special.modified_bessel_k1
multigammaln = _special.mvlgamma
ndtr = _special.ndtr
ndtri = _special.ndtri
polygamma = _special.polygamma
psi = _special.digamma
round = _unary.round
scaled_modified_bessel_k0 = _special.scaled_modified_bessel_k0
scaled_modified_bessel_k1 = _special.scaled_modified_bessel_k1
shifted_chebyshev_polynomial_t = _polynomials.shifted_chebyshev_polynomial_t
shifted_chebyshev_polynomial_u = _polynomials.shifted_chebyshev_polynomial_u
shifted_chebyshev_polynomial_v = _polynomials.shifted_chebyshev_polynomial_v
shifted_chebyshev_polynomial_w = _polynomials.shifted_chebyshev_polynomial_w
sinc = _unary.sinc
softmax = _activation.softmax
spherical_bessel_j0 = _special.spherical_bessel_j0
xlog1py = _special.xlog1py
xlogy = _special.xlogy
zeta = _special.zeta
