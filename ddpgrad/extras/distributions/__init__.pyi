"""Probability distributions: draws, densities, entropies and divergences, batched and differentiable."""

from . import constraints as constraints, transforms as transforms
from .binary import (
    Bernoulli as Bernoulli, Binomial as Binomial, ContinuousBernoulli as ContinuousBernoulli,
    Geometric as Geometric, NegativeBinomial as NegativeBinomial,
)
from .categorical import (
    Categorical as Categorical, Multinomial as Multinomial, OneHotCategorical as OneHotCategorical,
    OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough,
)
from .covariance import MultivariateNormal as MultivariateNormal, Wishart as Wishart
from .distribution import Distribution as Distribution
from .gamma import (
    Beta as Beta, Chi2 as Chi2, Dirichlet as Dirichlet, FisherSnedecor as FisherSnedecor, Gamma as Gamma,
    StudentT as StudentT,
)
from .independent import Independent as Independent
from .kl import kl_divergence as kl_divergence, register_kl as register_kl
from .location_scale import Cauchy as Cauchy, Gumbel as Gumbel, Laplace as Laplace, Normal as Normal
from .mixture_same_family import MixtureSameFamily as MixtureSameFamily
from .rates import Exponential as Exponential, Poisson as Poisson
from .relaxed import RelaxedBernoulli as RelaxedBernoulli, RelaxedOneHotCategorical as RelaxedOneHotCategorical
from .transformed_distribution import TransformedDistribution as TransformedDistribution
from .transformed_families import (
    HalfCauchy as HalfCauchy, HalfNormal as HalfNormal, InverseGamma as InverseGamma, Kumaraswamy as Kumaraswamy,
    LogisticNormal as LogisticNormal, LogNormal as LogNormal, Pareto as Pareto, Weibull as Weibull,
)
from .transforms import (
    AbsTransform as AbsTransform, AffineTransform as AffineTransform, ComposeTransform as ComposeTransform,
    ExpTransform as ExpTransform, identity_transform as identity_transform,
    IndependentTransform as IndependentTransform, PowerTransform as PowerTransform,
    ReshapeTransform as ReshapeTransform, SigmoidTransform as SigmoidTransform,
    SoftmaxTransform as SoftmaxTransform, SoftplusTransform as SoftplusTransform,
    StickBreakingTransform as StickBreakingTransform, TanhTransform as TanhTransform, Transform as Transform,
)
from .uniform import Uniform as Uniform
from .von_mises import VonMises as VonMises
