"""Local SGD: ranks, or hosts, train by themselves for some steps, and then average their parameters.

Source: https://arxiv.org/abs/1808.07217; names and arguments are those of torch.distributed.algorithms.model_averaging
and torch.distributed.optim.PostLocalSGDOptimizer. See `post_localSGD_hook` for the gradients.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...core.tensor import Tensor
from ...ops.shape.stacking import cat
from ...optim.optimizer import Optimizer
from .. import collectives
from ..process_group import ProcessGroup, is_outside, new_subgroups, resolve

__path__: list[str] = []  # PyTorch has its parts in modules below

Parameters = Iterable[Tensor] | Iterable[dict[str, Any]]


def average_parameters(params: Iterable[Tensor], process_group: ProcessGroup | None = None) -> None:
    """Make the parameters, in place, the average over the group. Ranks outside it keep theirs."""
    if is_outside(process_group):
        return
    kinds: dict[Any, list[Tensor]] = {}
    for parameter in params:
        kinds.setdefault(parameter.dtype, []).append(parameter)
    for tensors in kinds.values():
        flat = cat([t.detach().reshape(-1) for t in tensors])
        collectives.all_reduce(
            flat, collectives.ReduceOp.AVG, process_group, label="average of the parameters"
        )
        write_parts(tensors, flat)


def write_parts(tensors: Sequence[Tensor], flat: Tensor) -> None:
    """Write the elements of `flat`, of one tensor after the other, into `tensors`."""
    for t, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        t.detach().copy_(part.view(t.shape))


def get_params_to_average(params: Parameters) -> list[Tensor]:
    """Those that have a gradient, of parameters or of an optimizer's groups of them."""
    found: list[Tensor] = []
    for given in params:
        if not isinstance(given, (Tensor, dict)):
            raise NotImplementedError(f"Parameter input of type {type(given)} is not supported")
        found += [given] if isinstance(given, Tensor) else given["params"]
    return [p for p in found if p.grad is not None]


def average_parameters_or_parameter_groups(params: Parameters, process_group: ProcessGroup | None) -> None:
    """`average_parameters` of those that have a gradient."""
    average_parameters(get_params_to_average(params), process_group)


class ModelAverager(ABC):
    """Says when parameters are averaged, and over which group. step: how often it was called."""

    def __init__(self, process_group: ProcessGroup | None = None) -> None:
        self.process_group = resolve(process_group)
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Parameters) -> None:
        """Called after each step of the optimizer; averages `params`, if it is time."""

    def state_dict(self) -> dict[str, Any]:
        """What a file needs, to go on."""
        return {"step": self.step}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self.step = state_dict["step"]


class PeriodicModelAverager(ModelAverager):
    """Averages every `period` steps, the first time after `warmup_steps`."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: ProcessGroup | None = None) -> None:
        super().__init__(process_group)
        self.period, self.warmup_steps = _checked(
            period, warmup_steps, "Arg ``period`` must be a positive value."
        )

    def average_parameters(self, params: Parameters) -> None:
        late = self.step - self.warmup_steps
        if late >= 0 and late % self.period == 0:
            average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1


class HierarchicalModelAverager(ModelAverager):
    """Averages over groups of several sizes: by the largest period that the step is a multiple of.

    period_group_size_dict: steps between averages -> number of neighbouring ranks, ascending; the last number is that of
    all. Every rank of the world makes one.
    """

    def __init__(
        self,
        period_group_size_dict: Mapping[int, int] | None = None,
        warmup_steps: int = 0,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(process_group)
        sizes = dict(period_group_size_dict or {})
        if not sizes:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        wrong = "The minimum period in arg ``period_group_size_dict`` must be a positive value."
        _, self.warmup_steps = _checked(min(sizes), warmup_steps, wrong, max(sizes))
        whole = self.process_group.size()
        last = list(sizes.values())[-1]
        if last != whole:
            raise ValueError(
                f"The last value in arg ``period_group_size_dict`` {last} must be equal to the size of arg "
                f"``process_group`` {whole}."
            )
        self.period_process_group_dict = {
            period: self.process_group if size == whole else new_subgroups(size, self.process_group)[0]
            for period, size in sizes.items()
        }

    def average_parameters(self, params: Parameters) -> None:
        fits = [period for period in self.period_process_group_dict if self.step % period == 0]
        if self.step >= self.warmup_steps and fits:
            average_parameters_or_parameter_groups(params, self.period_process_group_dict[fits[-1]])
        self.step += 1


def _checked(period: int, warmup_steps: int, wrong: str, longest: int | None = None) -> tuple[int, int]:
    if warmup_steps < 0:
        raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
    if period < 1:
        raise ValueError(wrong)
    if (longest or period) == 1:
        warnings.warn(
            "When period is 1, no need to use model averaging because the communication cost of all-reducing parameters "
            "will be no less than the cost of all-reducing gradients by DistributedDataParallel in the backward pass. "
            "Therefore, only DistributedDataParallel should be used for this case.",
            stacklevel=3,
        )
    return period, warmup_steps


class PostLocalSGDOptimizer(Optimizer):
    """`optim`, and after each of its steps `averager`; its file holds the averager's state."""

    state_is_per_rank = True  # a Checkpointer keeps it for every rank, with the model that it trains

    def __init__(self, optim: Optimizer, averager: ModelAverager) -> None:
        self.optim, self.averager = optim, averager
        self.defaults, self.param_groups, self.state = optim.defaults, optim.param_groups, optim.state
        self._without_hooks()

    def __repr__(self) -> str:
        return repr(self.optim)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update by this rank's gradients, and average if it is time. Collective."""
        loss = self.optim.step() if closure is None else self.optim.step(closure)
        self.averager.average_parameters(self.param_groups)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the optimizer's own."""
        self.optim.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the optimizer's own."""
        self.optim.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, and the averager's, of which all have "step"."""
        return {**self.optim.state_dict(), **self.averager.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned; without a "step" the averager begins anew, with a warning."""
        mine = self.averager.state_dict().keys()
        self.optim.load_state_dict({key: value for key, value in state_dict.items() if key not in mine})
        self.param_groups, self.state = self.optim.param_groups, self.optim.state
        if "step" in state_dict:
            self.averager.load_state_dict(state_dict)
        else:
            warnings.warn(
                "Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.",
                stacklevel=2,
            )
            self.averager.step = 0
