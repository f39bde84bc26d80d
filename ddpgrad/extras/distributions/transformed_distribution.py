"""TransformedDistribution: a distribution after one or more transforms."""

from __future__ import annotations

from typing import Any, ClassVar

from ... import Tensor, broadcast_shapes, no_grad
from . import constraints
from .distribution import Distribution
from .independent import Independent
from .transforms import ComposeTransform, Transform
from .utils import same_as, sum_rightmost


class TransformedDistribution(Distribution):
    """The distribution of the `transforms`, one or a list in order, of draws from `base_distribution`."""

    arg_constraints: ClassVar = {}

    def __init__(self, base_distribution: Any, transforms: Any, validate_args: bool | None = None) -> None:
        self.transforms = list(transforms) if isinstance(transforms, (list, tuple)) else [transforms]
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError(f"transforms must be a Transform or a list of Transforms, but was {transforms}")
        before = base_distribution.batch_shape + base_distribution.event_shape
        events = len(base_distribution.event_shape)
        whole = ComposeTransform(self.transforms)
        if len(before) < whole.domain.event_dim:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {whole.domain.event_dim}, but got {before}."
            )
        after = whole.forward_shape(before)
        widened = tuple(broadcast_shapes(before, whole.inverse_shape(after)))
        if widened != tuple(before):
            base_distribution = base_distribution.expand(widened[: len(widened) - events])
        taken = whole.domain.event_dim - events
        self.base_dist: Any = Independent(base_distribution, taken) if taken > 0 else base_distribution
        # A transform of events keeps or changes the number of their dimensions; a transform of numbers does not.
        events = whole.codomain.event_dim + max(events - whole.domain.event_dim, 0)
        cut = len(after) - events
        super().__init__(after[:cut], after[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        shape = ComposeTransform(self.transforms).inverse_shape((*batch_shape, *self._event_shape))
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return new

    has_rsample = same_as("base_dist.has_rsample")

    def _image(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        image = ComposeTransform(self.transforms).codomain
        more = len(self._event_shape) - image.event_dim
        return constraints.independent(image, more) if more > 0 else image

    support: Any = constraints.dependent_property(_image, is_discrete=False)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            x = self.base_dist.sample(sample_shape)
            for transform in self.transforms:
                x = transform(x)
            return x

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        x = self.base_dist.rsample(sample_shape)
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        events, y, total = len(self._event_shape), value, 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            events += transform.domain.event_dim - transform.codomain.event_dim
            slope = transform.log_abs_det_jacobian(x, y)
            total = total - sum_rightmost(slope, events - transform.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y), events - len(self.base_dist.event_shape))

    def _increasing(self) -> Any:
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return sign

    def _flip(self, value: Any) -> Any:
        """Of a distribution function: a decreasing transform turns it round."""
        sign = self._increasing()
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._flip(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        value = self.base_dist.icdf(self._flip(value))
        for transform in self.transforms:
            value = transform(value)
        return value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.transforms})"
