"""`DistributedDataParallel`: one model, replicated; each rank trains on its own data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from ...autograd.grad_mode import is_grad_enabled
from ...core import environment, spans
from ...core.taping import taped
from ...core.tensor import Tensor
from ...nn.modules import registration
from ...nn.modules.module import Module
from ..process_group import ProcessGroup, default_group, resolve
from . import bucket, model_check
from .averages import checked_action
from .bucket import MIB
from .reducer import Reducer
from .replica_check import ReplicaCheck, broadcast

if TYPE_CHECKING:
    from ..device_mesh import DeviceMesh
    from .comm_hooks import GradBucket
    from .explain import Explanation
    from .join import Join, ModelJoinHook
    from .mixed_precision import _MixedPrecision


class DistributedDataParallel(Module):
    """Makes every rank's copy of `module` train as one: gradients are averaged in backward.

    At construction the ranks compare the model's parameters by name, shape and dtype, and, with `init_sync`,
    take over rank 0's values. bucket_cap_mb: size of a gradient bucket in MiB;
    by default 25, and less for models below 400 MiB, so that the last bucket is a small part. "auto": after 11 steps by
    default all ranks take the size with which rank 0's times, replayed, end backward first (see `explain`), and then keep it;
    the bits of training are the same. Only on CPUs and without communication hooks. bucket_cap_mb_list:
    instead the size of each bucket in the order of backward; the last counts for all that follow.
    forward_sync_buffers: before the first forward, and before each that follows one in training (not in `no_sync`, nor
    without gradients), buffers become rank 0's. broadcast_buffers: PyTorch's older name of it, under which False means that they are not rank 0's at
    the beginning either.
    Sparse gradients of embeddings with `sparse=True` are gathered and stay sparse.
    find_unused_parameters: a parameter may get no gradient; it counts as zero. static_graph: likewise, and all
    backward passes use what the first has used; RuntimeError in one that does not.
    skip_all_reduce_unused_params: buckets none of whose parameters were used are not reduced; they must be the same on all ranks.
    delay_all_reduce_named_params: (name, parameter) pairs, which are reduced together, without a hook, when the gradients of all of
    them and of `param_to_hook_all_reduce` are ready; those that a backward does not use count as zero.
    mixed_precision: dtypes to compute and to reduce in; see `_MixedPrecision` in torch.nn.parallel.distributed.
    process_group: the ranks, or device_mesh, a mesh of one dimension.
    device_ids, output_device, dim, check_reduction, gradient_as_bucket_view, batched_grad_copy: accepted for PyTorch's
    sake (a module lives on one device here, and gradients always are views of the buckets).
    check_replicas_every: after each so many steps, and after steps 1 and 10, the ranks compare their parameters, which must be equal
    (`replica_check` says what that cost); None: DDPGRAD_CHECK_REPLICAS, or 100; 0: never.
    nonfinite_gradients: what all ranks do at the end of a backward in which a gradient of one is NaN or infinite. Each drops the
    gradients (`.grad` is None, so that optimizers leave parameters alone), and then: "skip": goes on; rank 0 logs a
    warning; "raise": raises DistributedError; "stop": leaves the program by SystemExit. All name the rank and its first
    such parameter. None: as PyTorch, nothing, which a GradScaler needs. It costs a pass over the averaged gradients.
    `state_dict` has the names of `module`, without a prefix. In the default group the model can be pickled.
    Raises MismatchError, which names the first parameter that differs.
    """

    adds_no_name = True  # to names of parameters in state dicts
    require_forward_param_sync = True  # set to False, the next forward leaves the buffers as they are

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | Literal["auto"] | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = True,
        static_graph: bool = False,
        delay_all_reduce_named_params: Sequence[tuple[str, Tensor]] | None = None,
        param_to_hook_all_reduce: Tensor | None = None,
        mixed_precision: _MixedPrecision | None = None,
        *,
        device_mesh: DeviceMesh | None = None,
        forward_sync_buffers: bool | None = None,
        check_replicas_every: int | None = None,
        nonfinite_gradients: Literal["skip", "stop", "raise"] | None = None,
        bucket_cap_mb_list: Sequence[float] | None = None,
        skip_all_reduce_unused_params: bool = False,
        batched_grad_copy: bool = False,
    ) -> None:
        super().__init__()
        model_check.check_module(module, "DistributedDataParallel")
        model_check.check_values(module, device_mesh)
        model_check.warn_if_wrapped(module, DistributedDataParallel)
        model_check.check_places(device_ids, process_group, device_mesh)
        bucket.refuse_caps(bucket_cap_mb, bucket_cap_mb_list)
        checked_action("DistributedDataParallel", nonfinite_gradients)
        self.module = module
        self.process_group = device_mesh.get_group() if device_mesh is not None else resolve(process_group)
        self.device_mesh, self.device_ids = device_mesh, device_ids
        self.output_device, self.dim = output_device, dim
        self.bucket_cap_mb, self.gradient_as_bucket_view = bucket_cap_mb, gradient_as_bucket_view
        self.bucket_bytes_cap_list = [int(cap * MIB) for cap in bucket_cap_mb_list or ()]
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        with_buffers = broadcast_buffers is not False if forward_sync_buffers is None else True
        self.forward_sync_buffers = with_buffers if forward_sync_buffers is None else forward_sync_buffers
        if check_replicas_every is None:
            check_replicas_every = environment.steps_between_replica_checks()
        self.check_replicas_every = check_replicas_every
        self.nonfinite_gradients, self.mixed_precision = nonfinite_gradients, mixed_precision
        self.skip_all_reduce_unused_params = skip_all_reduce_unused_params
        self.delayed = delay_all_reduce_named_params, param_to_hook_all_reduce
        # Named by `_set_params_and_buffers_to_ignore_for_model`: what each rank has for itself.
        self.parameters_to_ignore = frozenset(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        alike = {
            "init_sync": init_sync,
            "bucket_cap_mb": bucket_cap_mb,
            "bucket_cap_mb_list": self.bucket_bytes_cap_list,
            "find_unused_parameters": find_unused_parameters,
            "static_graph": static_graph,
            "broadcast_buffers": with_buffers,
            "forward_sync_buffers": self.forward_sync_buffers,
            "check_replicas_every": check_replicas_every,
            "nonfinite_gradients": nonfinite_gradients,
            "skip_all_reduce_unused_params": skip_all_reduce_unused_params,
            "mixed_precision": str(mixed_precision),
            "delay_all_reduce_named_params": [name for name, _ in delay_all_reduce_named_params or ()],
            "verify": environment.verified_sums(),
        }
        model_check.verify(
            self.process_group.communicator, [*self._shared_parameters(), *self._shared_buffers()], alike
        )
        if init_sync and any(p.requires_grad for _, p in self._shared_parameters()):
            self._share_all(0, with_buffers)
        self._prepare()

    def _prepare(self) -> None:
        """Make what belongs to this process: the reducer with its buckets, and the check of the replicas."""
        self.joined: ModelJoinHook | None = None
        self.buffer_search = model_check.BuffersOf(self.module)
        c, shared = self.process_group.communicator, self._shared_parameters()
        trained = [(n, p) for n, p in shared if p.requires_grad]
        self.frozen = [(n, p) for n, p in shared if not p.requires_grad]
        if not trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
            )
        self.device = trained[0][1].device
        delayed: Sequence[int] = ()
        if self.delayed != (None, None):
            from .delayed import places  # here and below, as few programs do

            delayed = places(*self.delayed, trained)
        self.reducer = Reducer(
            [n for n, _ in trained],
            [p for _, p in trained],
            c,
            bucket.cap_of(self.bucket_cap_mb, trained),
            self.find_unused_parameters,
            self.static_graph,
            self.process_group.backend,
            model_check.with_sparse_gradients(self.module, [p for _, p in trained]),
            self.bucket_bytes_cap_list,
            delayed,
            self.delayed[1],
        )
        self.reducer.skips_unused = self.skip_all_reduce_unused_params
        self.low_precision = None
        if self.mixed_precision is not None:
            from .mixed_precision import LowPrecision

            self.low_precision = LowPrecision(self)
        if (every := environment.verified_sums()) and c.size > 1:
            from .recompute import RecomputedSums

            self.reducer.sums = RecomputedSums(c, self.process_group.ranks, every, self.reducer.finite)
        self.reducer.tunes = self.bucket_cap_mb == "auto"
        self.reducer.watch(self.nonfinite_gradients)
        self.replica_check = ReplicaCheck(shared, c, self.check_replicas_every, self.reducer.finite)
        self.replica_check.attend(self)
        self.changes_seen = registration.changes[0]

    @property
    def broadcast_buffers(self) -> bool:
        """`forward_sync_buffers`."""
        return self.forward_sync_buffers

    def _shared_parameters(self) -> list[tuple[str, Tensor]]:
        return [(n, p) for n, p in self.module.named_parameters() if n not in self.parameters_to_ignore]

    def _shared_buffers(self) -> list[tuple[str, Tensor]]:
        return [(n, b) for n, b in self.module.named_buffers() if n not in self.parameters_to_ignore]

    def __getstate__(self) -> dict[str, Any]:
        """The module and the arguments; whoever loads it has the default group."""
        if self.process_group is not default_group():
            raise RuntimeError(
                "DDP Pickling/Unpickling are only supported when using DDP with the default process group. "
                "Save ddp.state_dict() instead."
            )
        made = ("reducer", "replica_check", "buffer_search", "frozen", "joined", "low_precision")
        own = {*made, "process_group", "device_mesh"}
        return {name: value for name, value in super().__getstate__().items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Ranks load it together, as they would construct it."""
        super().__setstate__({**state, "process_group": default_group(), "device_mesh": None})
        self._prepare()

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """`module(*inputs, **kwargs)`."""
        self._before_forward()
        result = (self.low_precision or self.module)(*inputs, **kwargs)
        if spans.recorders:
            spans.tell("forward", "forward", self.reducer.forward_began)
        return result

    @taped
    def _before_forward(self) -> None:
        """Check, and bring the buffers together."""
        self.reducer.check_idle()
        if self.changes_seen != registration.changes[0]:
            self._look_again()
        model_check.check_frozen(self.frozen)
        if is_grad_enabled():
            self.reducer.forward_runs()
            if self.training and self.reducer.enabled:
                self.replica_check.after(self.reducer.steps) if self.joined is None else self.joined.begin()
        self._share_buffers_for_forward()
        self.reducer.forward_began = spans.now()

    def _share_buffers_for_forward(self) -> None:
        """After a forward in training whose gradients were to be averaged, as PyTorch: it may have changed them."""
        averages = self.training and self.reducer.enabled and is_grad_enabled()
        if averages if self.joined is not None else self.require_forward_param_sync:
            self._share_buffers()
        if self.require_forward_param_sync is not averages:
            self.require_forward_param_sync = averages

    @property
    def require_backward_grad_sync(self) -> bool:
        """Whether the next backward averages gradients over the ranks; it does not within `no_sync`."""
        return self.reducer.enabled

    @require_backward_grad_sync.setter
    @taped
    def require_backward_grad_sync(self, value: bool) -> None:
        self.reducer.enabled = value

    def _share_buffers(self) -> None:
        """Make buffers those of rank 0, or of the first rank that still has batches."""
        if not self.forward_sync_buffers or not self.buffer_search.some():
            return
        buffers = [b for _, b in self._shared_buffers()]
        if buffers:
            src = 0 if self.joined is None else self.joined.first
            label = f"{self.reducer.prefix}buffers of rank {src}"
            broadcast(self.process_group.communicator, buffers, label, src)

    def _share_all(self, src: int, with_buffers: bool = True) -> None:
        """Make parameters and buffers those of rank `src`."""
        tensors = [t for _, t in self._shared_parameters() + (self._shared_buffers() if with_buffers else [])]
        broadcast(self.process_group.communicator, tensors, f"parameters and buffers of rank {src}", src)

    def _look_again(self) -> None:
        """After some module has changed: the parameters must be those of before; where they were converted, buckets follow."""
        parameters, hook = self.reducer.parameters, self.reducer.hook
        known = {id(p) for p in (*parameters, *(p for _, p in self.frozen))}
        model_check.check_members(self.module, known, self.parameters_to_ignore)
        self.changes_seen = registration.changes[0]
        kinds = [g.key[:2] for g in self.reducer.gradients]
        if [(p.dtype.name, str(p.device)) for p in parameters] != kinds:
            self._prepare()
            self.reducer.hook = hook or self.reducer.hook

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of forward passes inside only add up locally, wherever their backward runs; the next one averages the sum."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def accumulate(self, k: int, *batch: Any) -> Iterator[Any]:
        """Around a step of `k` micro-batches: `for x, y in ddp.accumulate(k, x, y):`, with a forward and a backward each.

        batch: tensors, or dicts and sequences of them, of k times as many samples as a micro-batch has: micro-batch i gets
        the rows i, i + k, i + 2 k ... Without any, the loop gets i. Gradients are means over all micro-batches of all ranks,
        averaged in the last one's backward, and the bits are those of k times as many ranks with one micro-batch each: with
        `DistributedSampler(data, accumulate=k)` 1 rank x 8, 2 x 4 and 8 x 1 are one run, dropout and BatchNorm included, which
        goes on from a checkpoint as any other. A loop that is left early has no gradients.
        k: the same on all ranks; on several a power of 2. Parameters of 32 bits or more; memory for about log2(k) - 1 more
        gradients. Raises MismatchError, and DistributedError where a micro-batch has two backward passes, or the last none.
        """
        from .accumulate import accumulate  # here, as few programs do

        buffers = [b for _, b in self._shared_buffers()] if self.forward_sync_buffers else []
        return accumulate(self.reducer, self, buffers, k, batch, self.joined is not None)

    def loss_weight(self, n: float | Tensor) -> None:
        """Say before a batch's backward how much its loss, a mean, counts: its number of tokens or samples.

        Gradients become sum(w g) / sum(w) over all batches since the last average, on all ranks: those of `no_sync`, and
        in `join` those of the ranks that have one; what one process would compute on the joined batch, but for rounding.
        Call it once for each batch, on all ranks; a batch of weight 0 counts as gradients of zero, whatever they are.
        Gradients of float16 are multiplied by `n` first: keep it near 1 for these, as n / usual_n.
        Backward raises DistributedError where all weights are 0.
        """
        self.reducer.weighted().attach(self.reducer)
        self.reducer.weighted().add(n)

    def _set_static_graph(self) -> None:
        """As `static_graph=True`, before the first backward."""
        if self.reducer.steps:
            raise self.reducer.logged(
                RuntimeError(
                    "set_static_graph() should be called before training loop starts and after DistributedDataParallel is "
                    f"constructed; {self.reducer.steps} backward passes have run"
                )
            )
        self.static_graph = True
        self.reducer.make_static()

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(
        module: Module, params_and_buffers_to_ignore: Sequence[str]
    ) -> None:
        """Before `module` is wrapped: its parameters and buffers of these names are each rank's own."""
        vars(module)["_ddp_params_and_buffers_to_ignore"] = list(params_and_buffers_to_ignore)

    def explain(self, collective: bool = False) -> Explanation:
        """Where the time of this rank's last steps went, and what other buckets would give; see `explain.Explanation`.

        collective: all ranks call it together, between backward passes: all-reduces of 64 KiB, 512 KiB and 4 MiB are timed,
        six of each, for the predictions, and unused parameters are told of every rank. Otherwise one rank may ask, and the
        times of its buckets say what an all-reduce costs. `ddprun --trace` tells more, of all ranks.
        """
        from .explain import explain  # here and below, as few programs ask

        return explain(self.reducer, collective)

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """What is known of this model and its last steps, by PyTorch's names; see `logging_data`."""
        from .logging_data import logging_data

        return logging_data(self)

    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False,
    ) -> Join:  # fmt: skip
        """Around a training loop: ranks may have different numbers of batches; see `Join` of `distributed.algorithms.join`.

        divide_by_initial_world_size: averages are over all ranks, not over those with a batch only.
        """
        from .join import Join  # here, as few programs join

        options = {"divide_by_initial_world_size": divide_by_initial_world_size}
        return Join([self], enable, throw_on_early_termination, **options)

    def join_hook(self, **kwargs: Any) -> ModelJoinHook:
        """What a rank without batches does in the steps of the others; see `Join`."""
        from .join import ModelJoinHook

        return ModelJoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    join_device, join_process_group = property(lambda m: m.device), property(lambda m: m.process_group)

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Let `hook(state, bucket)` communicate each bucket, instead of an average over the ranks.

        It returns a `Future` of the bucket's new gradients, which must be the same on all ranks. It is
        called for one bucket after the other, in one order on all ranks. See
        `ddpgrad.distributed.algorithms.ddp_comm_hooks` for hooks that are there.
        """
        from .comm_hooks import bind  # here, as few programs have hooks

        self.reducer.hook = bind(hook, state, self.reducer)
        if getattr(hook, "replicas_differ", False):
            self.check_replicas_every = self.replica_check.every = 0

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The state of `module`, without a prefix."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Load the state of `module`; names may have the prefix `module.` that PyTorch gives them."""
        if state_dict and all(name.startswith("module.") for name in state_dict):
            state_dict = {name.removeprefix("module."): value for name, value in state_dict.items()}
        return self.module.load_state_dict(state_dict, *args, **kwargs)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Where this is part of another module: names come without `module.`, as `state_dict` gives them, or with it."""
        for name in [name for name in state_dict if not name.startswith(f"{prefix}module.")]:
            state_dict[f"{prefix}module.{name.removeprefix(prefix)}"] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
