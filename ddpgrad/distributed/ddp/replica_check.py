"""Let replicas begin alike, and check that they stay so: every so many steps the ranks compare checksums of all parameters.

Replicas begin alike and get the same updates. They drift apart when a rank changes parameters
by itself: a seed that differs, an update that depends on the rank, a gradient that was changed
after it was averaged, a faulty machine. Losses look well then, and the model is wrong.

Replicas that are alike and NaN are found too, with the rank whose gradients began it.
"""

from __future__ import annotations

import hashlib
import logging
import time
import zlib
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from ...core.errors import DistributedError, MismatchError
from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ..communicator.communicator import Communicator
from ..process_group import ProcessGroup, resolve
from ..protocol.guard import blaming
from ..ranks import world
from ..tensor_work import give_back, host_of, on_host
from .averages import ADVICE, FiniteWatch

# Mistakes of a program show in its first step, and many runs are short.
_EARLY = (1, 10)
_BROADCAST_BYTES = 250 << 20
_log = logging.getLogger("ddpgrad.distributed")


class ReplicaCheck:
    """Compares the parameters of all ranks after steps 1 and 10, and after every `every` steps; 0: never.

    checks, seconds: how often it did so, and what that cost in all.
    """

    def __init__(
        self, parameters: Sequence[tuple[str, Tensor]], c: Communicator, every: int, finite: FiniteWatch
    ) -> None:
        if every < 0:
            raise ValueError(
                f"the steps between two checks of the replicas must not be negative, got {every}"
            )
        self._parameters, self._communicator, self.every = list(parameters), c, every
        self.checks, self.seconds = 0, 0.0
        self._finite = finite
        finite.enabled = finite.enabled or every > 0
        finite.parameters_are_finite = self._all_finite
        self._equal_at = 0
        self._here: set[int] = set()

    def attend(self, owner: object) -> None:
        """Look for NaN a last time, without a collective, when `owner` is freed or the program of the rank ends."""
        if self.every and self._communicator.size > 1:
            self._here = {*world.current().launch.ranks}
            world.current().last_checks.add(self._last, owner)

    def after(self, step: int) -> None:
        """Compare, if it is time.

        Raises MismatchError, which names rank, parameter and steps; DistributedError if parameters are NaN.
        """
        due = step in _EARLY or (self.every and step % self.every == 0)
        if not self.every or not due or step == self._equal_at or self._communicator.size == 1:
            return
        began = time.perf_counter()
        self.compare(step)
        cost = time.perf_counter() - began
        self.checks += 1
        self.seconds += cost
        self._equal_at = step
        _log.info("replicas are equal after step %d; the check took %.2f ms", step, cost * 1e3)

    def compare(self, step: int) -> None:
        """Compare now; collective. Raises as `after` does."""
        c = self._communicator
        sums = np.array([_checksum(p) for _, p in self._parameters], np.uint32)
        digest = np.frombuffer(hashlib.blake2b(sums.tobytes(), digest_size=16).digest(), np.uint64)
        began = self._finite.since[0] if self._finite.since else 0
        mine = np.append(digest, np.array([self._has_nan(), began], np.uint64))
        told = c.all_gather(mine, "check of the replicas")
        digests = [row[:2].tobytes() for row in told]
        if all(row[2] for row in told):  # of some ranks only, it is one more way to differ
            raise self._not_a_number(step, {rank: int(row[3]) for rank, row in enumerate(told) if row[3]})
        if len(set(digests)) == 1:
            return
        rows = c.all_gather(sums, "check of the replicas, by parameter")
        # The majority counts as right; where there is none, rank 0.
        counts = Counter(digests)
        usual = max(digests, key=lambda d: (counts[d], d == digests[0]))
        rank = next(r for r, d in enumerate(digests) if d != usual)
        like = digests.index(usual)
        different = np.flatnonzero(rows[rank] != rows[like])
        name = self._parameters[different[0]][0]
        others = [r for r, d in enumerate(digests) if d != usual and r != rank]
        error = MismatchError(
            f"the replicas have drifted apart: after step {step}, parameter '{name}' of rank {rank} is not that of "
            f"rank {like}; {len(different)} of {len(rows[rank])} parameters differ there"
            + (f", and ranks {others} differ too" if others else "")
            + f". They were equal after step {self._equal_at}. Look for what a rank does by itself: a seed, an "
            "update or clipping that depends on the rank, gradients changed after backward. "
            "DDPGRAD_CHECK_REPLICAS=1 checks after every step and so finds the first."
        )
        raise blaming(error, [rank])

    def _last(self) -> DistributedError | None:
        """The error for parameters that have become NaN after the last check."""
        found, finite, rank = self._finite.since, self._finite, self._communicator.rank
        if not self.every or finite.steps == self._equal_at or not self._has_nan():
            return None
        if found is not None and not finite.inherited:
            return _began(finite.steps, found[0], found[1], [rank])
        first = next(name for name, p in self._parameters if p.requires_grad and np.isnan(on_host(p)).any())
        error = DistributedError(
            f"parameters of rank {rank} are NaN after step {finite.steps}, '{first}' first, although its own gradients were finite before: those of another rank were not, as its "
            "report says, or look at the update (learning rate, a parameter changed by hand)"
        )
        return blaming(error, {*range(self._communicator.size)} - self._here)

    def _all_finite(self) -> bool:
        return all(bool(np.isfinite(on_host(p)).all()) for _, p in self._parameters)

    def _has_nan(self) -> bool:
        """Whether a parameter that is trained holds NaN."""
        arrays = (on_host(p) for _, p in self._parameters if p.requires_grad)
        # The sum is one pass without memory of its own; it is NaN for infinities of both signs, too.
        return any(bool(np.isnan(np.sum(a))) and bool(np.isnan(a).any()) for a in arrays)

    def _not_a_number(self, step: int, began: Mapping[int, int]) -> DistributedError:
        """The error for NaN in the parameters; `began`: by rank, since which step its gradients are not finite."""
        if not began:
            return DistributedError(
                f"parameters are NaN after step {step}, although the gradients of all ranks are finite: look at the update "
                "(learning rate, a parameter changed by hand)"
            )
        rank = min(began, key=lambda r: (began[r], r))
        names = self._communicator.all_gather_object(self._finite.since[1] if self._finite.since else "")
        others = sorted(r for r in began if began[r] == began[rank] and r != rank)
        return _began(step, began[rank], names[rank], [rank, *others])


def _began(step: int, first_step: int, name: str, ranks: Sequence[int]) -> DistributedError:
    """The error for parameters that are NaN after `step`, as gradients of `ranks` were since `first_step`."""
    others = f", with that of ranks {list(ranks[1:])}" if ranks[1:] else ""
    error = DistributedError(
        f"parameters are NaN after step {step}: in step {first_step} the gradient of '{name}' of rank {ranks[0]} was the first "
        f"that was not finite{others}{ADVICE}"
    )
    return blaming(error, ranks[:1])


def _checksum(parameter: Tensor) -> int:
    array = np.ascontiguousarray(on_host(parameter))
    return zlib.crc32(array.reshape(-1).view(np.uint8).data)


def sync_module_states(
    module: Module,
    process_group: ProcessGroup | None,
    broadcast_bucket_size: int = _BROADCAST_BYTES,
    src: int = 0,
    params_and_buffers_to_ignore: Container[str] = (),
    broadcast_buffers: bool = True,
) -> None:
    """Make parameters and buffers those of rank `src`, but for the names to ignore. broadcast_bucket_size: no effect."""
    named = [*module.named_parameters(), *(module.named_buffers() if broadcast_buffers else ())]
    tensors = [tensor for name, tensor in named if name not in params_and_buffers_to_ignore]
    broadcast(resolve(process_group).communicator, tensors, f"parameters and buffers of rank {src}", src)


def broadcast(c: Communicator, tensors: Sequence[Tensor], label: str, src: int = 0) -> None:
    """Give all ranks the values of rank `src`, joined to large messages by dtype and device."""
    groups: dict[Any, list[Tensor]] = {}
    for t in tensors:
        groups.setdefault((t.dtype, t.device), []).append(t)
    for group in groups.values():
        part: list[Tensor] = []
        size = 0
        for t in group:
            part.append(t)
            size += t.nbytes
            if size >= _BROADCAST_BYTES:
                start_broadcast(c, part, label, src, async_op=False)()
                part, size = [], 0
        if part:
            start_broadcast(c, part, label, src, async_op=False)()


def start_broadcast(
    c: Communicator, tensors: Sequence[Tensor], label: str, src: int, async_op: bool = True
) -> Callable[[], None]:
    """Begin to give all ranks the values of rank `src`, of tensors of one dtype and device. What is returned waits for them."""
    if c.size == 1:
        return lambda: None
    arrays = [host_of("broadcast", t, c) for t in tensors]
    flat = np.concatenate([a.reshape(-1) for a in arrays])
    work = c.broadcast(flat, src, label, async_op)

    def finish() -> None:
        work.wait()
        start = 0
        for t, array in zip(tensors, arrays, strict=True) if c.rank != src else ():
            array[...] = flat[start : start + array.size].reshape(array.shape)
            start += array.size
            give_back(t, array)

    return finish
