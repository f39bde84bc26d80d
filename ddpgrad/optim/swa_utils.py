"""Averages of a model's parameters: stochastic weight averaging and moving averages."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import Tensor, no_grad, tensor
from ..core.taping import taped
from ..nn.modules.batchnorm import _BatchNorm
from ..nn.modules.module import Module
from .lr_scheduler.base import LRScheduler, for_each_group
from .optimizer import Optimizer

Average = Callable[[Tensor, Tensor, Any], Tensor]
Averages = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """(mean, value, count) -> decay * mean + (1 - decay) * value: an exponential moving average."""
    _check_decay(decay)

    @no_grad()
    def average(mean: Tensor, value: Tensor, count: Any) -> Tensor:
        return decay * mean + (1 - decay) * value

    return average


def get_swa_avg_fn() -> Average:
    """(mean, value, count) -> the mean of one value more."""

    @no_grad()
    def average(mean: Tensor, value: Tensor, count: Any) -> Tensor:
        return mean + (value - mean) / (count + 1)

    return average


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """As `get_ema_avg_fn`, for lists of tensors, in place."""
    _check_decay(decay)

    @no_grad()
    def average(means: Sequence[Tensor], values: Sequence[Tensor], count: Any) -> None:
        for mean, value in zip(means, values, strict=True):
            if mean.is_floating_point() or mean.is_complex():
                mean.lerp_(value, 1 - decay)
            else:
                mean.copy_(mean * decay + value * (1 - decay))

    return average


def get_swa_multi_avg_fn() -> Averages:
    """As `get_swa_avg_fn`, for lists of tensors, in place."""

    @no_grad()
    def average(means: Sequence[Tensor], values: Sequence[Tensor], count: Any) -> None:
        for mean, value in zip(means, values, strict=True):
            if mean.is_floating_point() or mean.is_complex():
                mean.add_((value - mean) / (count + 1))
            else:
                mean.copy_(mean + (value - mean) / (count + 1))

    return average


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of those that `update_parameters` was shown.

    device: where to keep it. avg_fn: (mean, value, count of values before) -> new mean; multi_avg_fn:
    the same for lists, in place; the mean of all if neither is given. use_buffers: buffers are
    averaged too, and not copied. Sources: arXiv:1803.05407, arXiv:1806.05594
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @taped
    def update_parameters(self, model: Module) -> None:
        """Take the parameters of `model` into the averages; the first time they are copied."""
        means, values = ([t.detach() for t in self._averaged(m)] for m in (self.module, model))
        values = [value.to(mean.device) for mean, value in zip(means, values, strict=True)]
        if int(self.n_averaged) == 0:
            for mean, value in zip(means, values, strict=True):
                mean.copy_(value)
        elif self.avg_fn is not None:
            for mean, value in zip(means, values, strict=True):
                mean.copy_(self.avg_fn(mean, value, self.n_averaged.to(mean.device)))
        elif means:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(means, values, self.n_averaged.to(means[0].device))
        if not self.use_buffers:
            for mine, theirs in zip(self.module.buffers(), model.buffers(), strict=True):
                mine.detach().copy_(theirs.detach())
        self.n_averaged += 1

    def _averaged(self, model: Module) -> Iterable[Tensor]:
        return (
            itertools.chain(model.parameters(), model.buffers()) if self.use_buffers else model.parameters()
        )


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Take the running statistics of batch norms anew, as means over all batches of `loader`.

    A batch is a tensor, or a list or tuple that begins with what the model takes.
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    training = model.training
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    for batch in loader:
        input = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(input if device is None else input.to(device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(training)


class SWALR(LRScheduler):
    """From the learning rates as they are to `swa_lr` over `anneal_epochs`, along a cosine or a line; then constant."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for group, value in zip(
            optimizer.param_groups, for_each_group(optimizer, swa_lr, "swa_lr"), strict=True
        ):
            group["swa_lr"] = value
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs, self._anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        self._check_within_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = (self._share(s) for s in (step - 1, step))
        values = []
        for lr, group in zip(self._current(), self.optimizer.param_groups, strict=True):
            goal = group["swa_lr"]
            start = goal if before == 1 else (lr - before * goal) / (1 - before)
            values.append(goal * now + start * (1 - now))
        return values

    def _share(self, step: int) -> float:
        """How far the learning rate has come after so many steps, from 0 to 1."""
        share = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return share if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * share)) / 2
