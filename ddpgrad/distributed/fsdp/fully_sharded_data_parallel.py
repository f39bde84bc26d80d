"""`FullyShardedDataParallel`, PyTorch's first kind of sharding, for programs that were written for it.

It is `fully_shard` for a module and, by a policy, for parts of it, behind the methods and state dicts of the older class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from ...autograd.grad_mode import no_grad
from ...backend import device as devices
from ...backend.dtype import float32
from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ...nn.modules.registration import put
from ...nn.parameter import Parameter
from ...nn.utils.clip_grad import clip_grad_norm_
from ...utils._pytree import tree_map_only
from ..device_mesh import DeviceMesh
from ..process_group import ProcessGroup, get_rank
from ..tensor import DTensor
from .api import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,  # noqa: F401 - so do libraries
    MixedPrecision,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from .beginning import device_kind, flat_mesh, hybrid_mesh, materialise, move
from .fully_shard import fully_shard, replicate
from .optimizer_state import OptimizerStates
from .policies import CPUOffloadPolicy, MixedPrecisionPolicy
from .sharded_module import FSDPModule
from .state import module_state, states_below
from .wrap import Policy, apply_policy

_CONFIGS: dict[StateDictType, tuple[type[StateDictConfig], type[OptimStateDictConfig]]] = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
}
_WRAPPED = "_fsdp_wrapped_module."


class FullyShardedDataParallel(OptimizerStates, Module):
    """`module`, whose parameters, gradients and optimizer state are divided among the ranks; see `fully_shard`.

    auto_wrap_policy: which modules below form groups of their own; see `wrap`. These stay what they are: of a policy's
    modules none becomes a FullyShardedDataParallel. With a policy and `mixed_precision` norms over batches compute in float32. sharding_strategy: FULL_SHARD or SHARD_GRAD_OP; NO_SHARD keeps all on each rank
    (see `replicate`); HYBRID_SHARD or _HYBRID_SHARD_ZERO2 divide within groups of ranks, on which parameters are the same: device_mesh has two dimensions then,
    or process_group is (this rank's group that shards, the one that replicates); by default the ranks of a host shard. ignored_modules,
    ignored_states: what each rank keeps whole, for itself. param_init_fn: gets each module with parameters on meta, and gives
    it some; by default `to_empty` and `reset_parameters`. Other parameters and buffers become rank 0's, also
    without sync_module_states. Parameters are the module's own, as DTensors, also without use_orig_params.
    device_id: where parameters and buffers are moved, but for those that are ignored, and the arguments of forward too; by default
    they stay where they are. cpu_offload: for parameters on the CPU only. backward_prefetch, forward_prefetch, limit_all_gathers:
    accepted; one group is on its way while another is used. nonfinite_gradients, `accumulate`, `loss_weight`: as in `fully_shard`.
    """

    adds_no_name = True

    def __init__(
        self,
        module: Module,
        process_group: ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Policy | None = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Any] | None = None,
        device_mesh: DeviceMesh | None = None,
        *,
        nonfinite_gradients: Literal["skip", "stop", "raise"] | None = None,
    ) -> None:
        super().__init__()
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        whole = strategy is ShardingStrategy.NO_SHARD
        if whole and nonfinite_gradients is not None:
            raise NotImplementedError(
                f"FullyShardedDataParallel: nonfinite_gradients with {strategy}: use DistributedDataParallel, which takes it"
            )
        hybrid = strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
        precision = mixed_precision or MixedPrecision()
        if precision.keep_low_precision_grads:
            raise NotImplementedError("FullyShardedDataParallel: gradients of rows keep the rows' dtype")
        if process_group is not None and device_mesh is not None:
            raise ValueError("Cannot pass both process_group and device_mesh at the same time.")
        self._device = None if device_id is None else devices.of(device_id)
        if device_mesh is None:
            device_mesh = (hybrid_mesh if hybrid else flat_mesh)(
                process_group, device_kind(module, self._device)
            )
        if device_mesh.ndim != 1 + hybrid:
            raise ValueError(
                f"Expected device_mesh to have ndim={1 + hybrid} for {strategy} but got {device_mesh.ndim}: {device_mesh}"
            )
        states = list(ignored_states or ())
        outside = [*(ignored_modules or ()), *(s for s in states if isinstance(s, Module))]
        alone = {id(m): m for top in outside for m in top.modules()}
        ignored = [p for m in alone.values() for p in m.parameters(recurse=False)]
        ignored += [s for s in states if isinstance(s, Tensor)]
        materialise(module, param_init_fn, self._device)
        if self._device is not None:
            move(
                module,
                self._device,
                [*ignored, *(b for m in alone.values() for b in m.buffers(recurse=False))],
            )
        exact = precision._module_classes_to_ignore if auto_wrap_policy is not None else ()
        apart = {id(m): m for m in module.modules() if isinstance(m, exact) and id(m) not in alone}
        if precision.buffer_dtype is not None:
            converted = [m for m in module.modules() if id(m) not in apart and id(m) not in alone]
            for buffer in (b for m in converted for b in m.buffers(recurse=False)):
                if buffer.is_floating_point():
                    buffer.data = buffer.to(precision.buffer_dtype)
        offload = CPUOffloadPolicy() if cpu_offload and cpu_offload.offload_params else None

        def shard(part: Module, root: bool = False, **own: Any) -> None:
            mine = own.pop("mixed_precision", precision) or MixedPrecision()
            kind = own.pop("sharding_strategy", strategy)
            if own or whole != (kind is ShardingStrategy.NO_SHARD):
                raise NotImplementedError(
                    f"FullyShardedDataParallel: {', '.join(own) or kind} for {type(part).__name__} alone: parts may have "
                    f"mixed_precision and sharding_strategy of their own, and {strategy} is that of the whole"
                )
            policy = (
                MixedPrecisionPolicy(float32, output_dtype=mine.param_dtype)
                if id(part) in apart
                else MixedPrecisionPolicy(
                    mine.param_dtype,
                    mine.reduce_dtype,
                    cast_forward_inputs=mine.cast_forward_inputs or (root and mine.cast_root_forward_inputs),
                )
            )
            if whole:
                replicate(
                    part, mesh=device_mesh, mp_policy=policy, ignored_params=ignored, offload_policy=offload
                )
                return
            kept = (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2)
            fully_shard(
                part,
                mesh=device_mesh,
                mp_policy=policy,
                reshard_after_forward=False if kind in kept else None,
                ignored_params=ignored,
                offload_policy=offload,
                nonfinite_gradients=nonfinite_gradients if root else None,
            )

        if auto_wrap_policy is not None:
            for part in apart.values() if precision.param_dtype is not None else ():
                _unless_sharded(part, shard)
            apply_policy(module, auto_wrap_policy, partial(_unless_sharded, shard=shard), set(alone))
        _unless_sharded(module, shard, root=True)
        self._fsdp_wrapped_module = module
        self._settings = StateDictSettings(
            StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig()
        )

    @property
    def module(self) -> Module:
        """What was given."""
        return self._fsdp_wrapped_module

    def __getattr__(self, name: str) -> Any:
        if name == "_fsdp_wrapped_module" or name.startswith("__"):
            return super().__getattr__(name)
        return getattr(self._fsdp_wrapped_module, name)

    def __getitem__(self, key: Any) -> Any:
        return self.module[key]  # type: ignore[index]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """`module(*args, **kwargs)`."""
        device = self._device
        if device is not None:
            args, kwargs = tree_map_only(Tensor, lambda t: t.to(device), (args, kwargs))
        return self.module(*args, **kwargs)

    # -- parameters ----------------------------------------------------------------------

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """By their names in the module."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_WRAPPED, ""), parameter

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        """By their names in the module."""
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield name.replace(_WRAPPED, ""), buffer

    @staticmethod
    @contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """Whole parameters in the modules, for a block without forward and backward. Collective.

        recurse: also of the groups below that of `module`. writeback: what the block changes stays, of each rank what it
        changed in its rows. offload_to_cpu: they lie in host memory. with_grads: they have whole gradients.
        """
        if rank0_only and writeback:
            raise NotImplementedError(
                "summon_full_params: with rank0_only the other ranks would keep what they have: pass writeback=False"
            )
        own = module.module if isinstance(module, FullyShardedDataParallel) else module
        states = states_below(own) if recurse else [s for s in [module_state(own)] if s is not None]
        held: list[tuple[Any, Tensor]] = []
        for state in states:
            for group in state.groups:
                group.reshard()
                for m in group.members:
                    whole, grad = m.sharded.whole(), m.sharded.grad
                    summoned = Parameter(whole.cpu() if offload_to_cpu else whole, m.sharded.requires_grad)
                    if with_grads and isinstance(grad, DTensor):
                        summoned.grad = grad.whole().to(summoned.device)
                    held.append((m, summoned))
        for member, whole in held:
            member.stand(whole)
        try:
            yield
        finally:
            for member, whole in held:
                for owner, name in member.places:
                    put(owner, name, member.sharded)
                if writeback:
                    with no_grad():
                        member.sharded.part().copy_(whole[member.layout.index])
                        if whole.grad is not None and member.sharded.grad is not None:
                            member.sharded.grad.part().copy_(whole.grad[member.layout.index])

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of backward passes inside only add up; the next one outside averages the sum."""
        parts = [m for m in self.modules() if isinstance(m, FSDPModule)]
        for part in parts:
            part.set_requires_gradient_sync(False, recurse=False)
        try:
            yield
        finally:
            for part in parts:
                part.set_requires_gradient_sync(True, recurse=False)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """As `torch.nn.utils.clip_grad_norm_`, over the rows of all ranks."""
        norm: Any = clip_grad_norm_(self.parameters(), max_norm, norm_type)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """Those among `module` and all below it; root_only: that lie below no other."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        below = {id(inner) for outer in found for inner in outer.modules() if inner is not outer}
        return [m for m in found if id(m) not in below] if root_only else found

    # -- state dicts ---------------------------------------------------------------------

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:
        """How `state_dict` and `optim_state_dict` give tensors; returns the settings before."""
        kinds = _CONFIGS.get(state_dict_type)
        if kinds is None:
            raise NotImplementedError(f"{state_dict_type}: expected FULL_STATE_DICT or SHARDED_STATE_DICT")
        configs: list[Any] = [state_dict_config or kinds[0](), optim_state_dict_config or kinds[1]()]
        for config, kind in zip(configs, kinds, strict=True):
            if type(config) is not kind:
                raise RuntimeError(f"{state_dict_type} takes a {kind.__name__}, got {config}")
        before = FullyShardedDataParallel.get_state_dict_type(module)
        for part in FullyShardedDataParallel.fsdp_modules(module):
            part._settings = StateDictSettings(state_dict_type, *configs)
        return before

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """What was set."""
        found = FullyShardedDataParallel.fsdp_modules(module)
        if not found:
            raise ValueError(f"{type(module).__name__} is no FullyShardedDataParallel, and has none below it")
        return found[0]._settings

    @staticmethod
    @contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Iterator[None]:
        """As `set_state_dict_type`, for a block."""
        before = FullyShardedDataParallel.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            for part in FullyShardedDataParallel.fsdp_modules(module):
                part._settings = before

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """By the names in the module, as `set_state_dict_type` said: whole tensors by default. Collective then."""
        state, config = self.module.state_dict(*args, **kwargs), self._settings.state_dict_config
        dropped = getattr(config, "rank0_only", False) and get_rank() > 0
        for name, value in list(state.items()):
            if isinstance(value, DTensor) and isinstance(config, FullStateDictConfig):
                value = value.whole()
            # One by one, so that a GPU has room for one whole tensor at a time.
            state[name] = (
                None
                if dropped
                else value.cpu()
                if config.offload_to_cpu and isinstance(value, Tensor)
                else value
            )
        if dropped:
            state.clear()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Whole tensors or rows; each rank takes its rows. Keys are those of the module."""
        return self.module.load_state_dict(state_dict, *args, **kwargs)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Where this is part of another module: names come without what wraps them."""
        for name in [name for name in state_dict if not name.startswith(prefix + _WRAPPED)]:
            state_dict[prefix + _WRAPPED + name.removeprefix(prefix)] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _unless_sharded(part: Module, shard: Callable[..., None], **options: Any) -> None:
    """A part that the program has wrapped by itself is a group already."""
    if not isinstance(part, (FullyShardedDataParallel, FSDPModule)):
        shard(part, **options)
