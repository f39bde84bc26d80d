"""What is known of the averages of a model's gradients, and whose gradients stopped being finite first.

Averaging spreads one rank's NaN to all ranks, and the next step makes every rank's own gradients
NaN: afterwards nobody can tell whose fault it was. So each rank looks at its gradients before they
are averaged. Overflow is nothing bad under a GradScaler, which skips such a step; so a rank only
remembers where the present unbroken run of steps without finite gradients began. The check of the
replicas asks for that when it meets a parameter that is NaN. At the end of a program, when no rank can ask
another, it is known from one thing more: whether the rank's parameters were finite when its gradients were not.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from sys import getrefcount
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import finalize, ref

import numpy as np

from ...autograd.accumulate import AccumulateGrad
from ...backend.device import capturing
from ...core.modes import LentVersions
from ...core.tensor import Tensor
from ..communicator.communicator import Communicator

if TYPE_CHECKING:
    from .accumulate import MicroBatches
    from .loss_weight import LossWeights

E = TypeVar("E", bound=Exception)
T = TypeVar("T", bound=Tensor)

ACTIONS = ("skip", "stop", "raise")
"""What all ranks do in a step whose averaged gradients are not finite."""


def checked_action(caller: str, action: str | None) -> None:
    """Raise ValueError for what `nonfinite_gradients` cannot be."""
    if action not in (None, *ACTIONS):
        raise ValueError(f"{caller}: nonfinite_gradients must be one of {ACTIONS}, or None; got {action!r}")


ADVICE = (
    ". Look at that rank's data and loss in that step; autograd.set_detect_anomaly(True) finds the operation."
)


class FiniteWatch:
    """Watches the gradients of one rank.

    since: the step (counted in backward passes, from 1) and the parameter where the run of
    steps without finite gradients began that goes on now; None while they are finite.
    inherited: whether parameters were not finite then, so that the gradients could not be.
    steps: how many backward passes have ended.
    enabled: whether somebody will ask. parameters_are_finite: how to find out.
    """

    __slots__ = ("_found", "enabled", "inherited", "parameters_are_finite", "since", "steps")

    def __init__(self) -> None:
        self.enabled = False
        self.since: tuple[int, str] | None = None
        self.inherited = False
        self.steps = 0
        self.parameters_are_finite: Callable[[], bool] = lambda: True
        self._found: str | None = None

    def look(self, flat: Any, gradients: Callable[[], Iterable[tuple[str, Any]]]) -> None:
        """Note it if the bucket `flat`, which holds the named `gradients`, is not finite; not while a graph is captured."""
        if self.enabled and capturing.now is None and self._found is None and not _surely_finite(flat):
            self._found = next((name for name, g in gradients() if not np.isfinite(g).all()), None)

    @property
    def found(self) -> str:
        """The first parameter whose gradient is not finite in the pass that runs; "" if there is none."""
        return self._found or ""

    def step(self, number: int) -> None:
        """Backward number `number` has ended."""
        self.steps = number
        if self._found is None:
            self.since = None
        elif self.since is None:
            self.since = number, self._found
            self.inherited = not self.parameters_are_finite()
        self._found = None


def _surely_finite(flat: Any) -> bool:
    """False if an element may be infinite or NaN. One pass at the speed of memory."""
    if flat.dtype.kind == "f" and flat.dtype.itemsize >= 4:
        # Squares of huge numbers overflow too: who asks looks again.
        return bool(np.isfinite(np.dot(flat, flat)))
    return bool(np.isfinite(flat).all())


def is_finite(flat: Any) -> bool:
    """Whether all elements are finite."""
    return _surely_finite(flat) or bool(np.isfinite(flat).all())


def part_of(grad: Any) -> Tensor:
    """What this rank has of a gradient, in the same memory."""
    return grad.part() if hasattr(grad, "to_local") else grad


def has_gradient(owner: Tensor) -> bool:
    """Whether this rank's part of `owner.grad` has an element that is not zero."""
    grad: Any = owner.grad
    if grad is None:
        return False
    return bool(part_of(grad).count_nonzero())


def lent(gradient: T) -> T:
    """`gradient`, which is to notice who has its elements: the next one will take its memory."""
    gradient._versions = LentVersions()
    return gradient


def is_shared(gradient: Tensor) -> bool:
    """Whether something else has the elements of a `lent` gradient: views, arrays of NumPy's, what `detach` or `.data` returned."""
    counter: Any = gradient._versions
    return getrefcount(counter) > 3 or bool(counter.borrowers())


def move_out(gradient: Tensor) -> None:
    """Give a former gradient that the program keeps, and what else has its elements, memory of their own."""
    counter: Any = gradient._versions
    # The gradient, this variable and the argument itself refer to it; to another counter also the list of borrowers.
    sharing = [counter] if getrefcount(counter) > 3 else []
    owners = [] if sharing else [gradient]
    for borrower in counter.borrowers():
        if isinstance(borrower, np.ndarray):
            finalize(borrower, id, borrower.base)  # who has its address, such as a memoryview, may read on
            state: Any = (1, borrower.shape, borrower.dtype, False, borrower.tobytes())
            borrower.__setstate__(state)
        elif getrefcount(borrower) > 4 or (owner := borrower.owner()) is None:
            sharing.append(borrower)
        else:
            owners.append(owner)
    if sharing:
        owners += gc.get_referrers(*sharing)  # of all objects, which takes milliseconds
    for owner in owners:
        if isinstance(owner, Tensor):
            array: Any = owner._array
            own = array.placed_at(array.array.copy()) if hasattr(array, "placed_at") else array.copy()
            owner._array = own
    gradient._versions[0] += 1  # a graph that saved the elements finds out


def arrival(owner: ref[Any], which: Any) -> Callable[..., None]:
    """What an accumulator calls when it is filled: `owner.arrived(which)`. It does not keep the owner and its memory alive."""

    def filled(*gradients: Any) -> None:
        alive = owner()
        if alive is not None:
            alive.arrived(which)

    return filled


class Averages:
    """What is known of the averages of a model's gradients, whoever makes them: `Reducer`, or the `Context` of `fully_shard`.

    names, parameters, accumulators: where gradients arrive. owners: by the same index, what has the average as `.grad`.
    hooks: on accumulators, which go with this. communicator: all ranks that average. scale: of averages, where not all
    took part. used: parameters that got a gradient since the last average, without an average too. steps: backward passes
    after which gradients were averaged. enabled: off where gradients only add up locally. `error` is the last that was
    `logged`. nonfinite: one of `ACTIONS`.
    """

    names: list[str]
    parameters: list[Tensor]
    owners: list[Tensor]
    accumulators: list[AccumulateGrad]
    hooks: list[Any]
    enabled: bool
    sparse: frozenset[int] = frozenset()

    def __init__(self, communicator: Communicator, nonfinite: str | None = None) -> None:
        self.communicator, self.scale = communicator, 1.0
        communicator.models += 1
        # Models of one structure must not be taken for one another where a rank uses them in another order.
        self.prefix = f"model {communicator.models}: " if communicator.models > 1 else ""
        self.used: set[int] = set()
        self.steps, self.error = 0, ""
        self.weights: LossWeights | None = None  # since the first use, or a `join`
        self.micro: MicroBatches | None = None  # since the first `accumulate`
        self.awaited = False  # a forward outside `no_sync` has run, and no backward has ended since
        self.forward_within = False  # `no_sync`: the last one
        self.finite = FiniteWatch()
        self.watch(nonfinite)

    def watch(self, nonfinite: str | None) -> None:
        """Let all ranks do what `nonfinite` says."""
        self.nonfinite = nonfinite
        self.finite.enabled = nonfinite is not None

    def listen(self) -> None:
        """Let the accumulators call `arrived`, and nobody else's who listened before."""
        self._arrivals = [arrival(ref(self), i) for i in range(len(self.accumulators))]
        for node, told in zip(self.accumulators, self._arrivals, strict=True):
            node.filled = told

    def hears(self, i: int) -> bool:
        """Whether parameter i tells this of its gradients, and nobody who listened later."""
        return self.accumulators[i].filled is self._arrivals[i]

    def listen_no_more(self) -> None:
        """Undo `listen`, save where somebody listens instead, and remove the hooks."""
        for hook in self.hooks:
            hook.remove()
        for node, told in zip(self.accumulators, self._arrivals, strict=True):
            if node.filled is told:
                node.filled = None

    def forward_runs(self) -> None:
        """A forward that records begins. Whether it runs within `no_sync` decides on its backward, as in PyTorch."""
        self.awaited = self.awaited or self.enabled
        self.forward_within = not self.enabled

    @property
    def averages_next(self) -> bool:
        """Whether the next backward averages; that of a model whose own forward has not run, unless it is within `no_sync`."""
        return self.awaited or (self.enabled and not self.forward_within)

    def memory(self, i: int) -> Tensor | None:
        """Where the gradient of parameter i has to lie; None: anywhere."""
        return None

    def adopt(self, i: int) -> None:
        """Move a gradient that lies elsewhere into the memory for it, if there is some."""
        view, parameter = self.memory(i), self.parameters[i]
        if view is not None and parameter._grad is not None and parameter._grad is not view:
            if parameter._grad.requires_grad:
                from .use_errors import warn_of_lost_graph  # here, as few programs come to it

                warn_of_lost_graph(self.names[i])
            view._array[...] = parameter._grad._array
            parameter._grad = view

    def summed_in(self, i: int) -> np.dtype:
        """The dtype of parameter i's gradient when it is averaged."""
        return self.parameters[i]._array.dtype

    def arrives(self, i: int) -> None:
        """Parameter i has a gradient of the batch whose backward runs."""
        self.used.add(i)
        if self.micro is not None and self.micro.count:
            self.micro.arrived(self, i)

    def finish_parts(self, i: int) -> None:
        """Parameter i gets no gradient of the last micro-batch, if there are some, but may have one of those before."""
        if self.micro is not None and self.micro.count:
            self.micro.finish(self, i)

    def factors(self, ended: bool = True) -> tuple[float, int]:
        """What averages are to be multiplied by, and divided by. Collective where weights were given.

        ended: whether the backward has; gradients that still arrive have the weight of the others.
        """
        scale = None if self.weights is None else self.weights.take(self)
        if ended and self.weights is not None:
            self.weights.end()
        if scale is not None:
            return scale, 1
        return self.scale, 1 if self.micro is None else self.micro.count or 1

    def weighted(self) -> LossWeights:
        """The weights of this rank's batches."""
        if self.weights is None:
            from .loss_weight import LossWeights  # here, as few programs have weights

            self.weights = LossWeights()
        return self.weights

    def logged(self, error: E) -> E:
        """`error`, remembered for whoever asks the model what went wrong."""
        self.error = str(error)
        return error
