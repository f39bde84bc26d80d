"""What the groups below one root share: the backward pass that runs, memory to reduce in, and the order of use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...autograd import engine
from ...core.errors import DistributedError
from .group import Group


class Context:
    """The groups of a root module.

    root: whatever stands for that module. order: of first uses in the last forward; backward comes in the opposite one,
    and the next group is gathered while one is in use.
    """

    def __init__(self, root: object, groups: Sequence[Group]) -> None:
        self.root, self.groups = root, list(groups)
        self.order: list[Group] = []
        self.in_backward = False
        self._reducing: Group | None = None
        self._room: np.ndarray | None = None
        for group in groups:
            group.prepare(self)

    def begin_forward(self) -> None:
        """The root's forward begins."""
        if engine.running():
            return
        if self.in_backward:
            self.in_backward = False
            for group in self.groups:
                group.give_up()
            raise DistributedError(
                "the last backward did not run to its end (it raised); gradients of the ranks may differ. Restart from a "
                "checkpoint, or zero the gradients and build the model again."
            )
        self.order = []

    def used(self, group: Group) -> None:
        """A forward uses `group`."""
        if not engine.running() and group not in self.order:
            self.order.append(group)

    # -- backward ----------------------------------------------------------------------------

    def enter_backward(self) -> None:
        """Part of a backward pass runs; when it ends, all gradients are there."""
        if not self.in_backward and engine.running():
            self.in_backward = True
            engine.queue_callback(self._end_backward)

    def gather_for_backward(self, group: Group) -> None:
        """Gather `group`, and begin with the one that comes next."""
        self.enter_backward()
        if group.memory is not None:
            return
        for other in self.groups:
            if other.rests and other.reshards_after_backward:
                other.reshard()  # no gradient tells when it is done; what backward needs again is gathered again
        group.gather()
        place = self.order.index(group) if group in self.order else 0
        if place:
            before = self.order[place - 1]
            if before.memory is None and not before.handed_over:
                before.start_gathering()

    def _end_backward(self) -> None:
        for group in self.groups:
            group.hand_over()
            group.handed_over = False
            group.stop_gathering()
        self.finish()
        self.in_backward = False

    # -- reductions --------------------------------------------------------------------------

    def room(self, group: Group) -> np.ndarray:
        """Memory for the whole gradients of `group`, until its reduction has ended. There is room for one."""
        self.finish()
        if self._room is None:
            most = max(g.part_size * g.communicator.size * g.reduce_dtype.itemsize for g in self.groups)
            self._room = group.communicator.allocate(most, np.uint8)
        self._reducing = group
        size = group.part_size * group.communicator.size
        return self._room[: size * group.reduce_dtype.itemsize].view(group.reduce_dtype)

    def advance(self) -> None:
        """Advance the reduction under way, without waiting."""
        if self._reducing is not None:
            self._reducing.poll()

    def finish(self) -> None:
        """Wait for the reduction under way."""
        if self._reducing is not None:
            self._reducing.finish()
            self._reducing = None
