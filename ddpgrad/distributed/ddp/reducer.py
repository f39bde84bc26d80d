"""The reducer: averages gradients over the ranks, bucket by bucket, while backward goes on.

Each parameter's accumulator writes its gradient straight into a bucket (`AccumulateGrad.bucket`) and then calls the hook
here. When the last gradient of a bucket has arrived, the bucket is handed to the communicator; buckets go in one order on
all ranks. When backward ends, the reducer waits for what is still under way.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import ref

from ...autograd import engine
from ...autograd.accumulate import AccumulateGrad, accumulator
from ...backend.device import on_capture_failure
from ...core import spans
from ...core.tensor import Tensor
from ..communicator.communicator import Communicator
from .averages import Averages, arrival
from .bucket import Bucket, Gradient, Layout, plan

if TYPE_CHECKING:
    from .comm_hooks import Hook
    from .recompute import RecomputedSums
    from .sparse_bucket import SparseBucket
    from .static_graph import StaticGraph


TRIGGER = -1
"""Stands among the numbers of parameters for the one that delayed buckets wait for."""

NOTED_STEPS = 10
"""Backward passes of which it is noted when each gradient arrives."""


class Reducer(Averages):
    """Keeps the gradients of `parameters` equal on all ranks after each backward.

    find_unused: parameters that get no gradient count as zeros, instead of being an error. static: likewise, and they
    are the same in each backward, or that is an error. backend: the name of the group's, for profilers.
    sparse: the places of parameters whose gradients are sparse; each has a bucket of its own, without flat memory.
    delayed: the places of parameters that are reduced together, without a hook, when the gradient of `trigger` is there too.
    One of them that a backward does not use counts as zero. A parameter that a later reducer takes over is that one's;
    when a reducer is dropped, the parameters are as if it had never been.
    """

    def __init__(
        self,
        names: Sequence[str],
        parameters: Sequence[Tensor],
        communicator: Communicator,
        cap_bytes: int,
        find_unused: bool,
        static: bool = False,
        backend: str = "",
        sparse: Collection[int] = (),
        caps: Sequence[int] = (),
        delayed: Sequence[int] = (),
        trigger: Tensor | None = None,
    ) -> None:
        super().__init__(communicator)
        self.names, self.parameters = list(names), list(parameters)
        self.owners = self.parameters
        self.sums: Communicator | RecomputedSums = communicator  # who makes the averages of buckets
        self.cap_bytes, self.caps, self.find_unused = cap_bytes, caps, find_unused
        self.static: StaticGraph | None = None
        self.backend, self.delayed = backend, list(delayed)
        self.enabled = True
        self.skips_unused = False  # buckets without any gradient, which are the same on all ranks
        self.rebuilt = False
        self.unused: list[int] = []  # in the last backward
        self.forward_began = self.backward_began = self.computed = self.calculated = 0.0
        self.stood = 0.0  # seconds for which the program stood still before this backward's end
        # Of each of the last steps: when forward, backward and what comes after it began, and the times of its buckets.
        self.timed: deque[tuple[float, float, float, list[tuple[float, ...]]]] = deque(maxlen=20)
        # Of some: after how many seconds each gradient had arrived and backward had ended, less what `stood`; how long it all took.
        self.noted: deque[tuple[dict[int, float], float, float]] = deque(maxlen=NOTED_STEPS)
        self.steps_to_note = 0
        self.tunes = False  # whether `choose` is to find the size of buckets
        self.hook: Hook | None = None
        # Whether buckets are laid out anew by the order of the first backward. Where parameters may be
        # unused there is no such order: each rank would have its own.
        self.reorders = not find_unused or static
        self.arrival_order: Sequence[int] = range(len(parameters))[::-1]
        self.arrivals: dict[int, float] | None = None  # of this backward, if it is noted
        self.sparse = frozenset(sparse)
        self.gradients = [
            Gradient(n, p.numel(), p.itemsize, (p.dtype.name, str(p.device), i if i in self.sparse else None))
            for i, (n, p) in enumerate(zip(names, parameters, strict=True))
        ]
        # Held for good: an accumulator, and with it the bucket, lives only as long as somebody refers to it.
        self.accumulators: list[AccumulateGrad] = [accumulator(p) for p in parameters]
        self.hooks = []
        self.listen()
        self.trigger = None if trigger is None else accumulator(trigger)
        if self.trigger is not None:
            self.hooks.append(self.trigger.register_hook(arrival(ref(self), TRIGGER)))
        self.place: dict[int, Bucket | SparseBucket] = {}
        self._build(self.planned(cap_bytes, caps))
        self.note_arrivals()
        if static:
            self.make_static()

    def make_static(self) -> None:
        """As `static`, before the first backward."""
        from .static_graph import StaticGraph  # here, as few programs have one

        self.static, self.find_unused = StaticGraph(), True

    def note_arrivals(self) -> None:
        """Note of the next backward passes when each gradient arrives: `NOTED_STEPS`, besides one to warm up."""
        if not self.backward_runs:
            self.steps_to_note, self.arrivals = 1 + NOTED_STEPS, {}

    def lay_out(self, order: Sequence[int], cap_bytes: int, caps: Sequence[int]) -> None:
        """Deal the gradients to buckets. Collective; between backward passes."""
        self.arrival_order, self.cap_bytes, self.caps = order, cap_bytes, caps
        layouts = self.planned(cap_bytes, caps)
        if layouts != [bucket.layout for bucket in self.buckets]:
            self._build(layouts)

    def planned(self, cap_bytes: int, caps: Sequence[int]) -> list[Layout]:
        """The buckets of that size, in the order of arrival. Those of delayed gradients come before that of their trigger."""
        order = [i for i in self.arrival_order if i not in self.delayed]
        layouts = plan(self.gradients, order, cap_bytes, caps)
        at = (n for n, b in enumerate(layouts) for i in b.indices if self.accumulators[i] is self.trigger)
        first = next(at, len(layouts))
        everything = [sum(g.size * g.itemsize for g in self.gradients) + 1]
        return layouts[:first] + plan(self.gradients, self.delayed, 0, everything) + layouts[first:]

    def _build(self, layouts: Sequence[Layout]) -> None:
        """Allocate the buckets and let each accumulator write there."""
        self.buckets: list[Bucket | SparseBucket] = [self._bucket(layout) for layout in layouts]
        self.place = {}
        self.timed.clear()
        self.noted.clear()
        self.order = list(self.buckets)  # in which they are handed over
        for bucket in self.buckets:
            bucket.waits = bucket.layout.indices[0] in self.delayed
            views = bucket.views if isinstance(bucket, Bucket) else [None]
            for i, view in zip(bucket.layout.indices, views, strict=True):
                self.place[i] = bucket
                self.accumulators[i].bucket, self.accumulators[i].room = view, bucket
                self.adopt(i)
        self._begin()

    def _bucket(self, layout: Layout) -> Bucket | SparseBucket:
        first = layout.indices[0]
        if first not in self.sparse:
            return Bucket(layout, self.names, self.parameters, self.communicator, self.prefix)
        from .sparse_bucket import SparseBucket  # here, as few models have some

        return SparseBucket(layout, self.prefix + self.names[first], self.parameters[first])

    def __del__(self) -> None:
        self.listen_no_more()
        for i, bucket in self.place.items():
            if self.accumulators[i].room is bucket:
                self.accumulators[i].bucket = self.accumulators[i].room = None
        if self.awaited and self.communicator.size > 1 and not sys.is_finalizing():
            from .use_errors import warn_when_gone  # here, as few programs come to it

            warn_when_gone(self.accumulators)

    def memory(self, i: int) -> Tensor | None:
        """Where the gradient of parameter i has to lie: its bucket; a sparse one lies anywhere."""
        return self.accumulators[i].bucket

    def _begin(self) -> None:
        self.ready: set[int] = set()
        self.next = 0  # the first bucket that was not handed over yet
        self.backward_runs = self.awaited = False
        self.staged: Bucket | None = None  # on its way to the host
        if self.arrivals:
            self.arrivals = {}
        if self.static is not None:
            self.static.begin()
        for bucket in self.buckets:
            bucket.missing = len(bucket.layout.indices) + bucket.waits

    # -- during backward -----------------------------------------------------------------

    def arrived(self, i: int) -> None:
        """Parameter i's accumulator is filled: its gradient is complete on this rank."""
        if i == TRIGGER:
            self._release()
            return
        if self.accumulators[i].room is not self.place[i]:
            return
        self.arrives(i)
        if not (self.backward_runs or self.averages_next):
            return
        self._enter_backward()
        if self.static is None or self.static.is_last(i):
            self._complete_on_this_rank(i)

    def _complete_on_this_rank(self, i: int) -> None:
        if i in self.ready:
            from .use_errors import second_gradient  # here and below, as few programs come to it

            raise second_gradient(self.names[i])
        self.ready.add(i)
        if self.arrivals is not None:
            self.arrivals[i] = spans.now() - self.backward_began - self.stood
        self.adopt(i)
        if self._less_missing(self.place[i]) == 0:
            self._hand_over()

    def _enter_backward(self) -> None:
        if not self.backward_runs:
            self.backward_runs = True
            self.backward_began, self.stood = spans.now(), 0.0
            engine.queue_callback(self._finish, outermost=True)
            on_capture_failure(self._begin)

    def _release(self) -> None:
        """The gradient that delayed buckets wait for is there, or will not come."""
        if (self.backward_runs or self.averages_next) and TRIGGER not in self.ready:
            self._enter_backward()
            self.ready.add(TRIGGER)
            for bucket in self.buckets:
                if bucket.waits:
                    self._less_missing(bucket)
            self._hand_over()

    def _less_missing(self, bucket: Bucket | SparseBucket) -> int:
        """One more thing that `bucket` waits for is there; how many are missing now."""
        bucket.missing -= 1
        if bucket.missing == 0:
            bucket.ready = spans.now()
            if spans.recorders:
                index = self.buckets.index(bucket)
                spans.mark("ready", f"bucket {index} ready", bucket=index, parameters=bucket.label)
        return bucket.missing

    def _hand_over(self) -> None:
        """Start the buckets that are complete, in order, and advance those under way."""
        while self.next < len(self.order) and self.order[self.next].missing == 0:
            self._post_staged()
            bucket = self.order[self.next]
            self._look_at(bucket)
            bucket.launched, bucket.finished = spans.now(), 0.0
            if self.skips_unused and self.backward_runs and self.used.isdisjoint(bucket.layout.indices):
                bucket.finished = bucket.launched
            elif not isinstance(bucket, Bucket):
                bucket.start(self.communicator)
            elif self.hook is not None and not bucket.waits:
                from .comm_hooks import grad_bucket  # here, as few programs have hooks

                bucket.start_hook(self.hook, grad_bucket(self, bucket))
            else:
                bucket.start(self.sums)
                self.staged = bucket if bucket.stage is not None else None
            bucket.exposed = spans.now() - bucket.launched
            self.stood += bucket.exposed
            self.next += 1
        began = spans.now()
        for bucket in self.order[: self.next]:
            if bucket.finished or bucket.work is None:
                continue
            done = bucket.work.poll()
            ended = spans.now()
            bucket.exposed += ended - began
            self.stood += ended - began
            began = ended
            if done:
                bucket.finished = ended
            elif isinstance(bucket, Bucket):
                break

    def _post_staged(self) -> None:
        """Post the bucket that went to the host last: the GPU went on with backward meanwhile.

        When it is complete depends on the GPU, so ranks post it at the same place of the program: before the next.
        """
        bucket, self.staged = self.staged, None
        if bucket is not None:
            bucket.post(self.sums)

    def _look_at(self, bucket: Bucket | SparseBucket) -> None:
        """Notice gradients that are not finite while it can be told whose they are (on a CPU: it costs a pass)."""
        if self.nonfinite is not None or (self.communicator.size > 1 and bucket.stage is None):
            indices, views = bucket.layout.indices, bucket.views
            self.finite.look(
                bucket.flat, lambda: ((self.names[i], v._array) for i, v in zip(indices, views, strict=True))
            )

    def _finish(self) -> None:
        """At the end of backward: account for unused parameters, wait, prepare the next pass."""
        self.computed = spans.now()
        self.calculated = self.computed - self.backward_began - self.stood
        for i in () if self.static is None else self.static.ended():
            self._complete_on_this_rank(i)
        self.unused = unused = [i for i in range(len(self.parameters)) if i not in self.ready]
        refused = [] if self.find_unused else [i for i in unused if i not in self.delayed]
        if refused or (self.static is not None and self.static.used not in (None, self.used)):
            from .use_errors import use_error

            raise self.logged(use_error(self, refused))
        for i in unused:
            self.adopt(i)
            self.finish_parts(i)
            if self.memory(i) is not None and self.parameters[i]._grad is None:
                view = self.accumulators[i].free_bucket()
                view._array[...] = 0
                if not self.find_unused:
                    self.parameters[i]._grad = view
            self._less_missing(self.place[i])
        if self.delayed:
            self._release()
        self._hand_over()
        self._complete()

    def shadow(self) -> None:
        """Take part in a backward of the other ranks with gradients of zero."""
        for bucket in self.buckets:
            bucket.clear()
            bucket.missing = 0
        self._hand_over()
        self.used.clear()
        self._complete()

    def _complete(self) -> None:
        """Wait for the averages, and prepare the next pass."""
        self._post_staged()
        for bucket in self.order:
            if bucket.work is None:
                continue  # without a gradient
            began = spans.now()
            bucket.finish(self.backend)
            ended = spans.now()
            bucket.exposed += ended - began
            bucket.finished = bucket.finished or ended
        if self.backward_runs:
            times = [(b.ready, b.launched, b.finished, b.exposed, b.took) for b in self.buckets]
            self.timed.append((self.forward_began, self.backward_began, self.computed, times))
            if self.arrivals is not None:
                self.noted.append((self.arrivals, self.calculated, spans.now() - self.backward_began))
        scale, parts = self.factors()
        if scale != 1.0 or parts > 1:
            for bucket in self.buckets:
                bucket.scale_by(scale, parts)
        if self.find_unused:
            from .unused import share_used  # here, as most programs use all

            share_used(self)
        if self.static is not None and self.used:  # a rank that had no batch has seen nothing
            self.static.used = frozenset(self.used)
        self.used.clear()
        failed = None
        if self.nonfinite is not None:
            from .nonfinite import settle_buckets  # here, as few programs ask

            failed = settle_buckets(self, self.nonfinite)
        self.steps += 1
        self.finite.step(self.steps)
        arrivals, self.arrivals = self.arrivals, None
        self._begin()
        if arrivals is not None:
            self._noted(arrivals)
        if self.tunes and self.steps > NOTED_STEPS:
            from .what_if import choose  # here, as few programs ask for it

            self.tunes = False
            choose(self)
        if failed is not None:
            raise failed

    def _noted(self, arrivals: Mapping[int, float]) -> None:
        """After a backward that was noted. Buckets are laid out by the order of rank 0's first one."""
        if self.steps == 1:
            self.noted.clear()  # the first takes longer
            if self.reorders:
                # What has not arrived stays as it was: all, of a rank that had no batch (`DistributedDataParallel.join`).
                known = [*arrivals, *(i for b in self.buckets for i in b.layout.indices if i not in arrivals)]
                self.lay_out(self.communicator.broadcast_object(known), self.cap_bytes, self.caps)
                self.rebuilt = True
        self.steps_to_note -= 1
        if self.steps_to_note:
            self.arrivals = {}

    def prepare_for_backward(self, outputs: Sequence[Tensor] = ()) -> None:
        """For programs that do what DistributedDataParallel does: the next backward averages, also of a forward within `no_sync`."""
        self.check_idle()
        self.awaited = True

    def _rebuild_buckets(self) -> bool:
        """False: the end of the first backward lays the buckets out anew."""
        return False

    def check_idle(self) -> None:
        """Called before forward: the last backward must have run to its end."""
        if self.backward_runs:
            self._begin()
            from .use_errors import cut_short

            raise cut_short(self.communicator.rank)
