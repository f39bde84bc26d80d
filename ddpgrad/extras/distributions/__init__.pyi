"""Probability distributions: draws, densities, entropies and divergences, batched and differentiable."""

from . import constraint_registry as constraint_registry, constraints as constraints, transforms as transforms
from .binary import (
    Bernoulli as Bernoulli, Binomial as Binomial, ContinuousBernoulli as ContinuousBernoulli,
    Geometric as Geometric, NegativeBinomial as NegativeBinomial,
)
from .categorical import (
    Categorical as Categorical, Multinomial as Multinomial, OneHotCategorical as OneHotCategorical,
    OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough,
)
from .constraint_registry import biject_to as biject_to, transform_to as transform_to
from .covariance import MultivariateNormal as MultivariateNormal, Wishart as Wishart
from .dirichlet import Beta as Beta, Dirichlet as Dirichlet
from .distribution import Distribution as Distribution
from .exp_family import ExponentialFamily as ExponentialFamily
from .gamma import Chi2 as Chi2, FisherSnedecor as FisherSnedecor, Gamma as Gamma, StudentT as StudentT
from .generalized_pareto import GeneralizedPareto as GeneralizedPareto
from .independent import Independent as Independent
from .kl import kl_divergence as kl_divergence, register_kl as register_kl
from .lkj_cholesky import LKJCholesky as LKJCholesky
from .location_scale import Cauchy as Cauchy, Gumbel as Gumbel, Laplace as Laplace, Normal as Normal
from .lowrank_multivariate_normal import LowRankMultivariateNormal as LowRankMultivariateNormal
from .mixture_same_family import MixtureSameFamily as MixtureSameFamily
from .rates import Exponential as Exponential, Poisson as Poisson
from .relaxed import RelaxedBernoulli as RelaxedBernoulli, RelaxedOneHotCategorical as RelaxedOneHotCategorical
from .transformed_distribution import TransformedDistribution as TransformedDistribution
from .transformed_families import (
    HalfCauchy as HalfCauchy, HalfNormal as HalfNormal, InverseGamma as InverseGamma, Kumaraswamy as Kumaraswamy,
    LogisticNormal as LogisticNormal, LogNormal as LogNormal, Pareto as Pareto, Weibull as Weibull,
)
from .transforms import (
    AbsTransform as AbsTransform, AffineTransform as AffineTransform, CatTransform as CatTransform,
    ComposeTransform as ComposeTransform, CorrCholeskyTransform as CorrCholeskyTransform,
    CumulativeDistributionTransform as CumulativeDistributionTransform, ExpTransform as ExpTransform,
    identity_transform as identity_transform, IndependentTransform as IndependentTransform,
    LowerCholeskyTransform as LowerCholeskyTransform, PositiveDefiniteTransform as PositiveDefiniteTransform,
    PowerTransform as PowerTransform, ReshapeTransform as ReshapeTransform, SigmoidTransform as SigmoidTransform,
    SoftmaxTransform as SoftmaxTransform, SoftplusTransform as SoftplusTransform, StackTransform as StackTransform,
    StickBreakingTransform as StickBreakingTransform, TanhTransform as TanhTransform, Transform as Transform,
)
from .uniform import Uniform as Uniform
from .von_mises import VonMises as VonMises
