"""The categorical distribution, one of K categories, and vectors that are made of its draws."""

from __future__ import annotations

from typing import Any, ClassVar

from ... import (
    Size,
    Tensor,
    arange,
    broadcast_shapes,
    exp,
    eye,
    finfo,
    lgamma,
    logsumexp,
    multinomial,
    no_grad,
)
from ...nn.functional import one_hot
from . import constraints
from .binary import Binomial
from .distribution import Distribution
from .utils import broadcast_all, formula, lazy_property, logits_to_probs, probs_to_logits, same_as


class Categorical(Distribution):
    """An index 0 … K-1, in proportion to `probs` (..., K) or exp(logits) (..., K).

    Both attributes are normalized: `probs` sum to 1 and `logits` are log-probabilities.
    """

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        given = probs if logits is None else logits
        assert given is not None
        if given.ndim < 1:
            raise ValueError(
                f"`{'probs' if logits is None else 'logits'}` parameter must be at least one-dimensional."
            )
        if logits is None:
            self.probs = given / given.sum(-1, keepdim=True)
        else:
            self.logits = given - logsumexp(given, dim=-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    _param: Any = formula(lambda self: vars(self)["probs" if "probs" in vars(self) else "logits"])
    param_shape = same_as("_param.shape")

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        """nan: categories have no order."""
        return self._param.new_full(self._batch_shape, float("nan"))

    mode: Any = formula(lambda self: self.probs.argmax(-1))

    @property
    def variance(self) -> Tensor:
        """nan: categories have no order."""
        return self._param.new_full(self._batch_shape, float("nan"))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        sample_shape = Size(sample_shape)
        with no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            drawn = multinomial(rows, sample_shape.numel(), True).T
        return drawn.reshape((*sample_shape, *self._batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        index = value.long().unsqueeze(-1)
        shape = broadcast_shapes(value.shape, self._batch_shape)
        return (
            self.logits.expand((*shape, self._num_events)).gather(-1, index.expand((*shape, 1))).squeeze(-1)
        )

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=finfo(self.logits.dtype).min)  # so that 0 * -inf is 0
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(arange(self._num_events, device=self._param.device), expand)


class OfCategories(Distribution):
    """The base of distributions of vectors (..., K) that are made of a Categorical over K."""

    arg_constraints: ClassVar = Categorical.arg_constraints
    probs, logits = same_as("_categorical.probs"), same_as("_categorical.logits")
    param_shape = same_as("_categorical.param_shape")

    def __init__(self, categorical: Categorical, validate_args: bool | None) -> None:
        self._categorical = categorical
        super().__init__(categorical.batch_shape, categorical.param_shape[-1:], validate_args)


class OneHotCategorical(OfCategories):
    """A one-hot vector of length K whose index is `Categorical(probs, logits)`."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(Categorical(probs, logits, validate_args), validate_args)

    mean: Any = same_as("probs")
    mode: Any = formula(lambda self: one_hot(self.probs.argmax(-1), self._event_shape[0]).type_as(self.probs))
    variance: Any = formula(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return one_hot(self._categorical.sample(sample_shape), self._event_shape[0]).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._event_shape[0]
        values = eye(n, dtype=self.probs.dtype, device=self.probs.device)
        values = values.view(n, *[1] * len(self._batch_shape), n)
        return values.expand((n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` whose draws pass gradients to `probs` unchanged (https://arxiv.org/abs/1308.3432)."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(OfCategories):
    """How often each category is drawn in `total_count` draws of probabilities `probs`, or by `logits` (..., K)."""

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError(
                "Multinomial: total_count must be one int, the same for the whole batch"
            )
        if total_count < 0:
            raise ValueError(f"Multinomial: expected total_count to be at least 0, got {total_count}")
        self.total_count = total_count
        super().__init__(Categorical(probs, logits), validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    mean: Any = formula(lambda self: self.probs * self.total_count)
    variance: Any = formula(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            drawn = self._categorical.sample((self.total_count, *sample_shape)).movedim(0, -1)
            counts = self.probs.new_zeros(self._extended_shape(sample_shape))
            return counts.scatter_add(-1, drawn, counts.new_ones(drawn.shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_sample(value)
        logits, value = broadcast_all(self.logits, value)
        ways = lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1)
        logits = logits.masked_fill((value == 0) & (logits == float("-inf")), 0.0)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        count = self.probs.new_tensor(float(self.total_count))
        each = Binomial(self.total_count, probs=self.probs, validate_args=False)
        values = each.enumerate_support(expand=False)[1:]
        ways = (exp(each.log_prob(values)) * lgamma(values + 1)).sum((0, -1))
        return count * self._categorical.entropy() - lgamma(count + 1) + ways
