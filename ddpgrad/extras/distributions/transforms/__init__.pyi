"""Transforms: invertible functions with the logarithm of the volume that they stretch by."""

from .base import _InverseTransform as _InverseTransform, Transform as Transform
from .composite import (
    ComposeTransform as ComposeTransform, identity_transform as identity_transform,
    IndependentTransform as IndependentTransform, ReshapeTransform as ReshapeTransform,
)
from .elementwise import (
    _clipped_sigmoid as _clipped_sigmoid, AbsTransform as AbsTransform, AffineTransform as AffineTransform, ExpTransform as ExpTransform,
    PowerTransform as PowerTransform, SigmoidTransform as SigmoidTransform,
    SoftplusTransform as SoftplusTransform, TanhTransform as TanhTransform,
)
from .joined import (
    CatTransform as CatTransform, CumulativeDistributionTransform as CumulativeDistributionTransform,
    StackTransform as StackTransform,
)
from .matrices import (
    CorrCholeskyTransform as CorrCholeskyTransform, LowerCholeskyTransform as LowerCholeskyTransform,
    PositiveDefiniteTransform as PositiveDefiniteTransform,
)
from .simplex import SoftmaxTransform as SoftmaxTransform, StickBreakingTransform as StickBreakingTransform
