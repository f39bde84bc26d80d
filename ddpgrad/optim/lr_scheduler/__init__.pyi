"""Learning rate schedules: they set the `lr` of an optimizer's groups, step by step."""

from .base import (
    _LRScheduler as _LRScheduler, EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING, LRScheduler as LRScheduler,
)
from .combined import ChainedScheduler as ChainedScheduler, SequentialLR as SequentialLR
from .cosine import (
    CosineAnnealingLR as CosineAnnealingLR, CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts,
)
from .cyclic import CyclicLR as CyclicLR
from .factors import (
    ConstantLR as ConstantLR, ExponentialLR as ExponentialLR, LambdaLR as LambdaLR, LinearLR as LinearLR,
    MultiplicativeLR as MultiplicativeLR, MultiStepLR as MultiStepLR, PolynomialLR as PolynomialLR,
    StepLR as StepLR,
)
from .one_cycle import OneCycleLR as OneCycleLR
from .plateau import ReduceLROnPlateau as ReduceLROnPlateau
