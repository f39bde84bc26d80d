"""`DistributedDataParallel`: one model, replicated; each rank trains on its own data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.grad_mode import is_grad_enabled
from ...core import environment, spans
from ...core.errors import MismatchError
from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ..communicator.communicator import Communicator
from ..process_group import ProcessGroup, default_group
from ..protocol.guard import blaming
from ..tensor_work import give_back, on_host
from . import bucket
from .bucket import MIB
from .reducer import Reducer
from .replica_check import ReplicaCheck

if TYPE_CHECKING:
    from .comm_hooks import GradBucket
    from .join import Joining

_BROADCAST_BYTES = 250 * MIB


class DistributedDataParallel(Module):
    """Makes every rank's copy of `module` train as one: gradients are averaged in backward.

    At construction the ranks compare the model's parameters by name, shape and dtype, and
    take over rank 0's values. bucket_cap_mb: size of a gradient bucket in MiB;
    by default 25, and less for models below 400 MiB, so that the last bucket is a small part.
    broadcast_buffers: before each forward in training, buffers become rank 0's.
    find_unused_parameters, static_graph: a parameter may get no gradient; it counts as zero.
    device_ids, output_device, gradient_as_bucket_view: accepted for PyTorch's
    sake (a module lives on one device here, and gradients always are views of the buckets).
    check_replicas_every: after so many steps the ranks compare their parameters, which must be equal
    (`replica_check` says what that cost); None: DDPGRAD_CHECK_REPLICAS, or 100; 0: never.
    `state_dict` has the names of `module`, without a prefix.
    Raises MismatchError, which names the first parameter that differs.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        gradient_as_bucket_view: bool = True,
        static_graph: bool = False,
        check_replicas_every: int | None = None,
    ) -> None:
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(
                "DistributedDataParallel: device_ids can only be None or contain a single element"
            )
        absent = [n for n, t in (*module.named_parameters(), *module.named_buffers()) if t.is_meta]
        if absent:
            raise RuntimeError(
                f"DistributedDataParallel: {', '.join(absent[:3])}{' …' if absent[3:] else ''} lie on meta and have no "
                "values that ranks could share. Give them some first: module.to_empty(device=...), then initialise or load "
                "them, or load_state_dict(..., assign=True)."
            )
        self.module = module
        self.process_group = process_group or default_group()
        self.broadcast_buffers = broadcast_buffers
        self.joined: Joining | None = None
        c = self.process_group.communicator
        verify(c, [*module.named_parameters(), *module.named_buffers()])
        trained = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        self.frozen = [(n, p) for n, p in module.named_parameters() if not p.requires_grad]
        if not trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
            )
        if init_sync:
            self._share_all(0)
        if bucket_cap_mb is None:
            cap = bucket.usual_cap(sum(p.nbytes for _, p in trained))
        elif bucket_cap_mb > 0:
            cap = int(bucket_cap_mb * MIB)
        else:
            raise ValueError(f"DistributedDataParallel: bucket_cap_mb must be positive, got {bucket_cap_mb}")
        self.reducer = Reducer(
            [n for n, _ in trained], [p for _, p in trained], c, cap, find_unused_parameters or static_graph
        )

        every = (
            environment.steps_between_replica_checks()
            if check_replicas_every is None
            else check_replicas_every
        )
        self.replica_check = ReplicaCheck(list(module.named_parameters()), c, every, self.reducer.finite)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """`module(*inputs, **kwargs)`."""
        self.reducer.check_idle()
        self._check_frozen()
        if self.training and self.reducer.enabled and is_grad_enabled():
            if self.joined is None:
                self.replica_check.after(self.reducer.steps)
            else:
                self.joined.step(has_batch=True)
        if self.training and self.reducer.enabled:
            self._share_buffers()
        if not spans.recorders:
            return self.module(*inputs, **kwargs)
        began = spans.now()
        result = self.module(*inputs, **kwargs)
        spans.tell("forward", "forward", began)
        return result

    def _share_buffers(self) -> None:
        """Make buffers those of rank 0, or of the first rank that still has batches."""
        buffers = list(self.module.buffers()) if self.broadcast_buffers else []
        if buffers:
            src = 0 if self.joined is None else self.joined.first
            broadcast(self.process_group.communicator, buffers, f"buffers of rank {src}", src)

    def _share_all(self, src: int) -> None:
        """Make parameters and buffers those of rank `src`."""
        tensors = [*self.module.parameters(), *self.module.buffers()]
        broadcast(self.process_group.communicator, tensors, f"parameters and buffers of rank {src}", src)

    def _check_frozen(self) -> None:
        """What had no gradient at construction has no place in a bucket: its gradient would stay local."""
        for name, p in self.frozen:
            if p.requires_grad:
                raise RuntimeError(
                    f"parameter '{name}' was frozen when DistributedDataParallel took the model over, and requires a "
                    "gradient now, which would not be averaged over the ranks. Wrap the model again after "
                    "requires_grad_(True)."
                )

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of backward passes inside only add up locally; the next one outside averages the sum."""
        before, self.reducer.enabled = self.reducer.enabled, False
        try:
            yield
        finally:
            self.reducer.enabled = before

    def _set_static_graph(self) -> None:
        """As `static_graph=True`, before the first backward."""
        self.reducer.find_unused, self.reducer.arrivals = True, None

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> AbstractContextManager[None]:
        """Around a training loop: ranks may have different numbers of batches.

        A rank that has run out adds gradients of zero to the steps of the others, and at the end takes
        over the model of a rank that had the most batches. divide_by_initial_world_size: averages
        are over all ranks, or only over those that have a batch. throw_on_early_termination: instead,
        all ranks raise RuntimeError when the first has run out. Within it, every forward in training
        is followed by its backward, and replicas are not compared.
        """
        if not enable:
            return nullcontext()
        from .join import joining  # here, as few programs join

        return joining(self, divide_by_initial_world_size, throw_on_early_termination)

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Let `hook(state, bucket)` communicate each bucket, instead of an average over the ranks.

        It returns a `Future` of the bucket's new gradients, which must be the same on all ranks. It is
        called for one bucket after the other, in one order on all ranks. See
        `ddpgrad.distributed.algorithms.ddp_comm_hooks` for hooks that are there.
        """
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        from .comm_hooks import bind  # here, as few programs have hooks

        self.reducer.hook = bind(hook, state)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The state of `module`, without a prefix."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Load the state of `module`; names may have the prefix `module.` that PyTorch gives them."""
        if state_dict and all(name.startswith("module.") for name in state_dict):
            state_dict = {name.removeprefix("module."): value for name, value in state_dict.items()}
        return self.module.load_state_dict(state_dict, *args, **kwargs)


def verify(c: Communicator, tensors: Sequence[tuple[str, Tensor]]) -> None:
    """Compare names, shapes, dtypes and what is trained between the ranks; `MismatchError` names the first difference."""
    mine = [[n, list(t.shape), t.dtype.name, t.requires_grad] for n, t in tensors]
    digest = hashlib.sha256(repr(mine).encode()).hexdigest()
    digests = c.all_gather_object(digest)
    if len(set(digests)) == 1:
        return
    lists = c.all_gather_object(mine)
    rank = next(r for r, d in enumerate(digests) if d != digests[0])
    raise blaming(MismatchError(_first_difference(lists[0], lists[rank], rank)), [rank])


def _first_difference(reference: list[Any], other: list[Any], rank: int) -> str:
    advice = "Build the same model on every rank; ranks may differ in data, not in the model's structure."
    for a, b in zip(reference, other, strict=False):
        if a != b:
            if a[0] != b[0]:
                return f"the models differ: rank 0 has parameter '{a[0]}' where rank {rank} has '{b[0]}'. {advice}"
            if a[1:3] == b[1:3]:
                trains, rests = (0, rank) if a[3] else (rank, 0)
                return (
                    f"the models differ in parameter '{a[0]}': rank {trains} trains it, rank {rests} does not "
                    f"(requires_grad). {advice}"
                )
            return (
                f"the models differ in parameter '{a[0]}': rank 0 has shape {a[1]} of {a[2]}, rank {rank} has shape "
                f"{b[1]} of {b[2]}. {advice}"
            )
    longer, shorter, names = (0, rank, reference) if len(reference) > len(other) else (rank, 0, other)
    first = names[min(len(reference), len(other))][0]
    return f"the models differ: rank {longer} has parameter '{first}', which rank {shorter} does not have. {advice}"


def broadcast(c: Communicator, tensors: Sequence[Tensor], label: str, src: int = 0) -> None:
    """Give all ranks the values of rank `src`, joined to large messages by dtype."""
    groups: dict[Any, list[Tensor]] = {}
    for t in tensors:
        groups.setdefault(t.dtype, []).append(t)
    for group in groups.values():
        part: list[Tensor] = []
        size = 0
        for t in group:
            part.append(t)
            size += t.nbytes
            if size >= _BROADCAST_BYTES:
                _broadcast_joined(c, part, label, src)
                part, size = [], 0
        if part:
            _broadcast_joined(c, part, label, src)


def _broadcast_joined(c: Communicator, tensors: Sequence[Tensor], label: str, src: int) -> None:
    if c.size == 1:
        return
    hosts = [on_host(t) for t in tensors]
    flat = np.concatenate([h.reshape(-1) for h in hosts])
    c.broadcast(flat, src, label)
    if c.rank == src:
        return
    start = 0
    for t, host in zip(tensors, hosts, strict=True):
        host[...] = flat[start : start + host.size].reshape(host.shape)
        start += host.size
        give_back(t, host)
