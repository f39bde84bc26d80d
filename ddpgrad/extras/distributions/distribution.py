"""Distribution: the base of all distributions, which handles shapes and checks values."""

from __future__ import annotations

import warnings
from typing import Any

from ... import Size, Tensor, no_grad
from ...core.face import all_in
from .constraints import is_dependent
from .utils import LazyProperty, unsaid


class Distribution:
    """A distribution, or a batch of them.

    batch_shape: the shape of the batch of independent distributions that the parameters hold.
    event_shape: the shape of one draw from one of them.
    validate_args: check parameters now and values later, and raise ValueError for those out of range.
    arg_constraints: the constraints of the parameters, by name.
    support: the constraint that draws satisfy. Where a class has not said one of these two, that is not checked, with a
    warning.
    """

    __subclasses__ = all_in(__package__ or "")
    has_rsample: Any = False
    has_enumerate_support: Any = False
    arg_constraints: Any = unsaid("arg_constraints")
    support: Any = unsaid("support")
    _validate_args: bool = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check their arguments when they are not told."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args() takes True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    def _unchecked(self, what: str) -> None:
        warnings.warn(
            f"{type(self)} does not define `{what}`, so that it is not checked; validate_args=False says that it need not be",
            stacklevel=4,
        )

    def _check_parameters(self) -> None:
        try:
            known = self.arg_constraints.items()
        except NotImplementedError:
            self._unchecked("arg_constraints")
            return
        for name, constraint in known:
            made_later = name not in vars(self) and isinstance(getattr(type(self), name), LazyProperty)
            if is_dependent(constraint) or made_later:
                continue
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    def _check_sample(self, value: Tensor) -> None:
        """`_validate_sample`, where arguments are checked."""
        if self._validate_args:
            self._validate_sample(value)

    def _validate_sample(self, value: Tensor) -> None:
        """Raise ValueError unless `value` could be a draw."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        events = len(self._event_shape)
        if value.shape[value.ndim - events :] != self._event_shape:
            raise ValueError(
                f"The right-most size of value must match event_shape: {tuple(value.shape)} vs {tuple(self._event_shape)}."
            )
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(value.shape), reversed(expected), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs {expected}."
                )
        try:
            support = self.support
        except NotImplementedError:
            self._unchecked("support")
            return
        if not support.check(value).all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support "
                f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    # -- shapes ------------------------------------------------------------------------

    @property
    def batch_shape(self) -> Size:
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        return self._event_shape

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        """The shape of what `sample(sample_shape)` returns."""
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with parameters, and parts of this batch, expanded to `batch_shape` without copies."""
        batch_shape = Size(batch_shape)
        new = object.__new__(type(self)) if _instance is None else _instance
        vars(new).update(vars(self))
        for name, value in vars(self).items():
            if isinstance(value, Distribution) and value.batch_shape == self._batch_shape:
                setattr(new, name, value.expand(batch_shape))
        for name, constraint in self.arg_constraints.items():
            value = vars(self).get(name)
            if isinstance(value, Tensor):
                event = value.shape[value.ndim - constraint.event_dim :]
                setattr(new, name, value.expand((*batch_shape, *event)))
        new._batch_shape = batch_shape
        return new

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """A new object for the `expand` of `cls`, as classes written for PyTorch make it; `_instance` if that is given.

        NotImplementedError if a subclass of `cls` has a constructor of its own and no `expand`.
        """
        if _instance is None and type(self).__init__ is not cls.__init__:
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also "
                "define a custom .expand() method."
            )
        return object.__new__(type(self)) if _instance is None else _instance

    # -- what classes know --------------------------------------------------------------

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        raise NotImplementedError(f"{type(self).__name__} has no mode")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of shape (*sample_shape, *batch_shape, *event_shape), without gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws through which gradients flow to the parameters, where the distribution allows it."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample: has_rsample is False")

    def sample_n(self, n: int) -> Tensor:
        """`sample((n,))`, with the warning that this is the name to use."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning, stacklevel=2
        )
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at `value`."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a draw up to `value`."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    def entropy(self) -> Tensor:
        """The entropy in nats, of shape batch_shape."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a finite discrete distribution along a new first dimension; expanded to the batch if asked."""
        raise NotImplementedError(f"{type(self).__name__} has no enumerate_support")

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        values = values.view(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    def __repr__(self) -> str:
        parts = []
        for name in self.arg_constraints:
            value = vars(self).get(name)
            if isinstance(value, Tensor):
                parts.append(f"{name}: {value if value.numel() == 1 else value.size()}")
        return f"{type(self).__name__}({', '.join(parts)})"
