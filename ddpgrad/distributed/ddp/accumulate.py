"""`accumulate` of `DistributedDataParallel` and `fully_shard`: a step of k micro-batches a rank has the bits of a step of k times as many ranks.

Micro-batch i of rank r stands for rank k r + i of k x ranks. What such a rank would have of its own, a micro-batch has:
a place in the tree that adds gradients (`protocol/tree.py`), random numbers, and buffers, of which rank 0's count.
A rank's micro-batches are neighbours in that tree, and a whole part of it where k is a power of 2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...autograd.grad_mode import no_grad
from ...core.errors import DistributedError, MismatchError
from ...core.tensor import Tensor, wrap
from ...nn.modules.module import Module
from ...random import Generator, get_rng_state, rank_generator, set_rng_state
from .averages import Averages, has_gradient, part_of
from .replica_check import broadcast
from .sync_batchnorm import SyncBatchNorm


class MicroBatches:
    """The gradients of one rank's micro-batches: of `count` in this step, 0 between steps; `index` is the current one.

    `.grad` holds the sum of a pair of neighbours, which backward adds by itself; one alone where gradients arrive in another
    dtype than they are summed in. `_sums` has, by parameter, the sums before it, each with the first of its micro-batches;
    `_room` arrays for more of them, where gradients have memory that is used again.
    """

    def __init__(self) -> None:
        self.count = self.index = 0
        self._arrived: dict[int, tuple[int, ...]] = {}  # versions of gradient and parameter then
        self._sums: dict[int, list[tuple[int, Any]]] = {}
        self._room: dict[int, list[Any]] = {}

    def begin(self, averages: Averages, index: int) -> None:
        """Micro-batch `index` comes next. The first of a pair finds no gradient: the pair before it is put aside."""
        for i, versions in self._arrived.items():
            if index and versions != _versions(averages, i):
                raise averages.logged(
                    DistributedError(
                        f"accumulate: parameter '{averages.names[i]}' or its .grad was changed between micro-batches {index - 1} and "
                        f"{index}. Call zero_grad() before the loop, and clip gradients and step() after it"
                    )
                )
        self.index = index
        self._arrived.clear()
        for i, parameter in enumerate(averages.parameters):
            together = 2 if averages.summed_in(i) == parameter._array.dtype else 1
            if index % together == 0:
                grad, parameter._grad = parameter._grad, None
                if grad is not None and index:
                    self._put(i, index - together, self._kept(averages, i, grad))

    def _kept(self, averages: Averages, i: int, grad: Tensor) -> Any:
        """The gradient in an array that nothing else writes to, of the dtype that it is summed in."""
        if averages.memory(i) is None:
            return part_of(grad)._array.astype(averages.summed_in(i), copy=False)
        room = self._room.setdefault(i, [])
        array = room.pop() if room else grad._array.copy()
        array[...] = grad._array
        return array

    def arrived(self, averages: Averages, i: int) -> None:
        """Parameter i has its gradient of the current micro-batch."""
        if i in self._arrived:
            raise DistributedError(
                f"accumulate: parameter '{averages.names[i]}' got a second gradient in micro-batch {self.index}. Add its "
                "losses, and call backward() once"
            )
        self._arrived[i] = _versions(averages, i)
        if self.index == self.count - 1:
            self.finish(averages, i)

    def finish(self, averages: Averages, i: int) -> None:
        """Make `.grad` of parameter i the sum over all micro-batches, if one of them has used it."""
        averages.adopt(i)
        view, parameter = averages.memory(i), averages.parameters[i]
        if parameter._grad is not None:
            self._put(
                i, self.index, part_of(parameter._grad)._array.astype(averages.summed_in(i), copy=False)
            )
        sums = self._sums.get(i)
        if sums:
            while len(sums) > 1:
                self._join(i)
            array = sums.pop()[1]
            if view is None:
                view = wrap(array)
            elif array is not view._array:
                view._array[...] = array
                self._room.setdefault(i, []).append(array)
            parameter._grad = view

    def _put(self, i: int, first: int, array: Any) -> None:
        """Add the sum that begins with micro-batch `first`; those before it that are nearer to one another are joined."""
        sums = self._sums.setdefault(i, [])
        while len(sums) > 1 and sums[-2][0] ^ sums[-1][0] < sums[-1][0] ^ first:
            self._join(i)
        sums.append((first, array))

    def _join(self, i: int) -> None:
        """Add the last two sums, in the memory of the later one, which may be the bucket's."""
        sums = self._sums[i]
        (_, later), (first, earlier) = sums.pop(), sums.pop()
        later += earlier
        if i in self._room:
            self._room[i].append(earlier)
        sums.append((first, later))

    def end(self, averages: Averages, whole: bool) -> None:
        """The step has ended; one that is not whole leaves no gradients."""
        self.count = 0
        if not whole:
            self._sums.clear()
            for tensor in (*averages.parameters, *averages.owners):
                tensor._grad = None


def _versions(averages: Averages, i: int) -> tuple[int, ...]:
    """Changes when the parameter or its gradient does, wherever these lie."""
    owner, grads = averages.owners[i], (averages.parameters[i]._grad, averages.owners[i]._grad)
    return owner._versions[0], *(-1 if grad is None else grad._versions[0] for grad in grads)


def accumulate(
    averages: Averages,
    model: Module,
    buffers: Sequence[Tensor],
    k: int,
    batch: tuple[Any, ...],
    joined: bool = False,
) -> Iterator[Any]:
    """What `DistributedDataParallel.accumulate` does; `buffers` are those of `model` that become rank 0's."""
    c = averages.communicator
    _check(averages, model, k, joined)
    parts = [_deal(values, k) for values in batch]
    batches = zip(*parts, strict=True) if len(parts) > 1 else parts[0] if parts else range(k)
    key = _agree(averages, k)
    micro = averages.micro = averages.micro or MicroBatches()
    if model.training and buffers:
        broadcast(c, buffers, "buffers of rank 0")
    before = first = [b.clone() for b in buffers]
    steps, state = averages.steps, get_rng_state()
    micro.count = k
    try:
        for index, given in enumerate(batches):
            micro.begin(averages, index)
            averages.enabled, averages.awaited = index == k - 1, False
            set_rng_state(_stream(key, k * c.rank + index))
            if index:
                _copy(before, buffers)
            yield given
            if index == 0:
                first = [b.clone() for b in buffers]
        if averages.steps == steps:
            raise averages.logged(
                DistributedError(
                    f"accumulate: rank {c.rank} called no backward() for the last of its {k} micro-batches, in which the ranks "
                    "average. Each micro-batch needs one; multiply by 0 the loss of one that is not to count"
                )
            )
        _copy(first, buffers)
    finally:
        averages.enabled = True
        micro.end(averages, whole=averages.steps > steps)
        set_rng_state(state)


def _check(averages: Averages, model: Module, k: int, joined: bool) -> None:
    """Raise if the bits would depend on the number of ranks, or gradients be lost."""
    if not isinstance(k, int) or k < 1:
        raise ValueError(f"accumulate: expected a number of micro-batches, at least 1, got {k!r}")
    if k & (k - 1) and averages.communicator.size > 1:
        raise ValueError(
            f"accumulate: on several ranks the number of micro-batches must be a power of 2, got {k}: the gradients of a rank "
            "are a part of the tree that adds those of all"
        )
    if not averages.enabled or joined:
        raise RuntimeError(
            "accumulate: not within no_sync() or join(), as it tells itself when ranks average"
        )
    for i, (name, owner) in enumerate(zip(averages.names, averages.owners, strict=True)):
        if has_gradient(owner):
            raise RuntimeError(
                f"accumulate: parameter '{name}' has a gradient from before. Call optimizer.zero_grad() before each step"
            )
        if k > 1 and (dtype := averages.summed_in(i)).itemsize < 4:
            raise NotImplementedError(
                f"accumulate: the gradient of '{name}' is averaged in {dtype}, and each rank would round the sum of its own. Keep "
                "parameters in float32, and compute in 16 bits under torch.autocast; with fully_shard, under "
                "MixedPrecisionPolicy(reduce_dtype=torch.float32)"
            )
    if averages.sparse:
        names = ", ".join(averages.names[i] for i in sorted(averages.sparse))
        raise NotImplementedError(
            f"accumulate: the gradients of {names} are sparse; make them with sparse=False"
        )
    if k > 1 and any(isinstance(m, SyncBatchNorm) for m in model.modules()):
        raise NotImplementedError(
            "accumulate: SyncBatchNorm has the mean over the ranks' current micro-batches, which depends on how many there are. "
            "Use BatchNorm or GroupNorm"
        )


def _deal(values: Any, k: int) -> list[Any]:
    """Every k-th row, from 0, 1, ... k - 1 on, of tensors that may lie in dicts and sequences."""
    if isinstance(values, Mapping):
        dealt = {name: _deal(value, k) for name, value in values.items()}
        return [{name: parts[i] for name, parts in dealt.items()} for i in range(k)]
    if isinstance(values, (list, tuple)):
        return [list(parts) for parts in zip(*(_deal(value, k) for value in values), strict=True)]
    if not isinstance(values, Tensor) or not values.ndim:
        raise TypeError(f"accumulate: expected tensors of samples, got {values!r:.80}")
    if len(values) % k:
        raise ValueError(
            f"accumulate: a batch of {len(values)} samples cannot be dealt to {k} micro-batches of equal size. Choose a multiple, "
            "and let the DataLoader leave out an incomplete batch (drop_last=True)"
        )
    return [values[i::k].contiguous() for i in range(k)]


def _agree(averages: Averages, k: int) -> int:
    """What all random numbers of this step come from: a draw of rank 0. Collective; all ranks have the same k."""
    communicator = averages.communicator
    drawn = rank_generator().raw64() >> 2 if communicator.rank == 0 else 0
    told = np.array([k, -k, drawn], np.int64)
    communicator.all_reduce(told, "max", "number of micro-batches")
    most, least, key = told.tolist()
    if most != -least:
        raise averages.logged(
            MismatchError(
                f"accumulate: rank {communicator.rank} has {k} micro-batches, and others from {-least} to {most}: all ranks need "
                "the same number"
            )
        )
    return key


def _stream(key: int, place: int) -> Tensor:
    """The state of a generator for one micro-batch of all ranks'."""
    seed = hashlib.sha256(key.to_bytes(8, "little") + place.to_bytes(8, "little")).digest()
    return Generator().manual_seed(int.from_bytes(seed[:7], "little")).get_state()


def _copy(values: Sequence[Tensor], to: Sequence[Tensor]) -> None:
    with no_grad():
        for value, tensor in zip(values, to, strict=True):
            tensor.copy_(value)
