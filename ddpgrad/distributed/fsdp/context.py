"""What the groups below one root share: the backward pass that runs, memory to reduce in, and the order of use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...autograd import engine
from ...backend.registry import backend_for
from ...core.errors import DistributedError
from ...core.tensor import Tensor
from ..communicator.communicator import Communicator
from ..ddp.averages import Averages
from .group import Group
from .room import Room


class Context(Averages):
    """The groups of a root module.

    root: whatever stands for that module. order: of first uses in the last forward; backward comes in the opposite one,
    and the next group is gathered while one is in use. spoiled: whether this rank's part of an average is not finite.
    """

    def __init__(
        self, root: object, groups: Sequence[Group], communicator: Communicator, nonfinite: str | None
    ) -> None:
        super().__init__(communicator, nonfinite)
        self.root, self.groups = root, list(groups)
        self.order: list[Group] = []
        self.in_backward = self.spoiled = False
        self.half_used: dict[Any, None] = {}  # states of several modules, some of which forward has used
        self._reducing: Group | None = None
        self._room: Room | None = None
        # Of the backward that runs, once gradients are averaged; and what waits for the last average.
        self._factors: tuple[float, int] | None = None
        self._waiting: list[Tensor] = []
        for group in groups:
            group.prepare(self)
        if len(devices := {backend_for(group.like).device_of(group.like) for group in groups}) > 1:
            raise RuntimeError(
                f"fully_shard: the parameters below one module lie on several devices, {sorted(map(str, devices))}: move the "
                "module to one"
            )
        members = [(m, group) for group in groups for m in group.members]
        for i, (m, _) in enumerate(members):
            m.index = i
        if nonfinite is not None and any(m.within is not None for m, _ in members):
            raise NotImplementedError(
                "nonfinite_gradients: the ranks that average decide, and others have the rest of what tensor parallelism divides: "
                "leave it out, and look at the norm that clip_grad_norm_ returns"
            )
        self.names, self.hooks = [m.name for m, _ in members], []
        self.parameters = [m.gathered for m, _ in members]
        self.name_owners()
        self.accumulators = [m.accumulator for m, _ in members]
        self._dtypes = [group.reduce_dtype for _, group in members]

    def name_owners(self) -> None:
        """Say anew whose gradients are averaged."""
        self.owners = [m.sharded for group in self.groups for m in group.members]

    @property
    def enabled(self) -> bool:
        """Whether the next backward averages gradients."""
        return all(group.syncs and group.all_reduces for group in self.groups)

    @enabled.setter
    def enabled(self, value: bool) -> None:  # type: ignore[override]
        for group in self.groups:
            group.syncs = value

    def summed_in(self, i: int) -> np.dtype:
        """The dtype of parameter i's gradient when it is averaged."""
        return self._dtypes[i]

    def begin_forward(self) -> None:
        """The root's forward begins."""
        if engine.running():
            return
        if self.in_backward:
            self.reset()
            raise DistributedError(
                "the last backward did not run to its end (it raised); gradients of the ranks may differ. Restart from a "
                "checkpoint, or zero the gradients and build the model again; where all ranks caught the same error, "
                "reset_iter_state() before the next forward."
            )
        self.order = []

    def reset(self) -> None:
        """Drop what a forward or backward that raised has left."""
        if self._reducing is not None:
            self._reducing.drop_averages()
            self._reducing = None
        self.in_backward = self.spoiled = False
        self._factors, self._waiting = None, []
        self.used.clear()
        for group in self.groups:
            group.give_up()

    def uses(self, group: Group) -> None:
        """A forward uses `group`."""
        if not engine.running() and group not in self.order:
            self.order.append(group)

    # -- backward ----------------------------------------------------------------------------

    def enter_backward(self) -> None:
        """Part of a backward pass runs; when it ends, all gradients are there."""
        if not self.in_backward and engine.running():
            self.in_backward = True
            engine.queue_callback(self._end_backward, outermost=True)

    def gather_for_backward(self, group: Group) -> None:
        """Gather `group`, and begin with the one that comes next."""
        self.enter_backward()
        if self._reducing is not None:
            self._reducing.reduction.go_on()
        if group.memory is not None:
            return
        for other in self.groups:
            if other.rests and other.reshards_after_backward:
                other.reshard()  # no gradient tells when it is done; what backward needs again is gathered again
        group.gather()
        following = group.next_in_backward
        if not following and group in self.order:
            following = self.order[: self.order.index(group)][-1:]
        for other in following:
            if other.memory is None and not other.handed_over:
                other.start_gathering()

    def _end_backward(self) -> None:
        for group in self.groups:
            group.hand_over()
            group.handed_over = False
            group.stop_gathering()
        self.finish()
        self.in_backward = False
        if self._factors is not None:
            self._complete()

    def _complete(self) -> None:
        """All averages of a backward are there."""
        self._factors, failed = None, None
        if self.weights is not None:
            self.weights.end()
        self.used.clear()
        if self.nonfinite is not None:
            from ..ddp.nonfinite import settle, shared  # here, as few programs ask

            spoiled, self.spoiled = shared(self.communicator, self.spoiled), False
            failed = settle(self, self.nonfinite) if spoiled else None
        self.steps += 1
        self.finite.step(self.steps)
        waiting, self._waiting = self._waiting, []
        for p in waiting:
            if p._grad is not None:
                _call_hooks(p)
        if failed is not None:
            raise failed

    def factors_now(self) -> tuple[float, int]:
        """`factors`, once in a backward: all averages of one have the same."""
        if self._factors is None:
            self._factors = self.factors(ended=False)
        return self._factors

    def averaged(self, p: Tensor) -> None:
        """The gradient of `p` has its average, which is dropped again if others are not finite."""
        if self.nonfinite is None:
            _call_hooks(p)
        else:
            self._waiting.append(p)

    # -- reductions --------------------------------------------------------------------------

    def room(self, group: Group) -> Any:
        """Memory for the whole gradients of `group`, until its reduction has begun. There is room for one."""
        self.finish()
        if self._room is None:
            most = max(g.reduction.length * g.reduction.sent.itemsize for g in self.groups)
            self._room = Room(group.reduction.readers, most, group.like)
        self._reducing, reduction = group, group.reduction
        return self._room.whole(reduction.length, reduction.sent)

    def sent(self, whole: Any) -> Any:
        """What the communicator reads for `whole`, which `room` gave, now that it is filled."""
        assert self._room is not None
        return self._room.sent(whole)

    def advance(self) -> None:
        """Advance the reduction under way, without waiting."""
        if self._reducing is not None:
            self._reducing.reduction.poll()

    def finish(self) -> None:
        """Wait for the reduction under way."""
        if self._reducing is not None:
            self._reducing.finish()
            self._reducing = None


def _call_hooks(p: Tensor) -> None:
    for hook in list((p._post_accumulate_hooks or {}).values()):
        hook(p)
