"""The table of modules that programs import by other names; `finder.py` reads it."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from ..core.face import homes, new_face

ROOT = __name__.partition(".")[0]

MODULES = {
    # What PyTorch has at the top and this package in one of its rooms.
    "_C": "compat._C",
    "__config__": "compat.__config__",
    "__future__": "compat.conversion_flags",
    "_dynamo": "compat._dynamo",
    "_dynamo.eval_frame": "compat.compiler",
    "_dynamo.exc": "compat.compile_options",
    "_prims_common": "compat._prims_common",
    "_tensor": "core.tensor",
    "_utils": "compat._utils",
    "_utils_internal": "compat._utils_internal",
    "accelerator": "compat.accelerator",
    "backends": "compat.backends",
    "compiler": "compat.compiler",
    "cpu": "compat.cpu",
    "environment": "core.environment",
    "errors": "core.errors",
    "hub": "compat.hub",
    "jit": "compat.jit",
    "monitor": "compat.monitor",
    "mps": "compat.mps",
    "overrides": "compat.overrides",
    "return_types": "core.return_types",
    "safetensors": "files.safetensors",
    "serialization": "files.serialization",
    "signal": "ops.signal",
    "signal.windows": "ops.signal.windows",
    "storage": "core.storage",
    "torch_version": "version",
    "types": "compat.types",
    "xpu": "compat.xpu",
    # What training in parallel does not need.
    "datasets": "extras.datasets",
    "distributions": "extras.distributions",
    "fx": "extras.fx",
    "masked": "extras.masked",
    "masked._ops": "extras.masked.functions",
    "masked.maskedtensor": "extras.masked",
    "masked.maskedtensor.core": "extras.masked.tensor",
    "masked.maskedtensor.creation": "extras.masked.tensor",
    "nested": "extras.nested",
    "fx._symbolic_trace": "extras.fx.tracer",
    "fx.immutable_collections": "extras.fx.node",
    "nn.attention.bias": "nn.attention_bias",
    "nn.utils.prune": "extras.prune",
    "quasirandom": "extras.quasirandom",
    "onnx": "extras.onnx",
    "transforms": "extras.transforms",
    "transforms.transforms": "extras.transforms",
    "utils.tensorboard": "extras.tensorboard",
    # Names of PyTorch's files.
    "autograd.profiler": "profiler.autograd_profiler",
    "cuda.amp.autocast_mode": "cuda.amp",
    "cuda.amp.common": "cuda.amp",
    "cuda.amp.grad_scaler": "cuda.amp",
    "distributed._functional_collectives": "distributed.functional_collectives",
    "distributed.algorithms.join": "distributed.ddp.join",
    "distributed.algorithms.model_averaging.averagers": "distributed.algorithms.model_averaging",
    "distributed.algorithms.model_averaging.hierarchical_model_averager": "distributed.algorithms.model_averaging",
    "distributed.algorithms.model_averaging.utils": "distributed.algorithms.model_averaging",
    "distributed.tensor.device_mesh": "distributed.device_mesh",
    "distributed.checkpoint._consolidate_hf_safetensors": "distributed.checkpoint.hf_storage",
    "distributed.checkpoint._dedup_save_plans": "distributed.checkpoint.global_plan",
    "distributed.checkpoint._nested_dict": "distributed.checkpoint.nested",
    "distributed.checkpoint._traverse": "distributed.checkpoint.nested",
    "distributed.elastic.multiprocessing.errors": "compat.torchrun_errors",
    "distributed.elastic.multiprocessing.api": "launcher.start_processes",
    "distributed.elastic.multiprocessing.errors.handlers": "compat.torchrun_errors",
    "distributed.launch": "launcher.torchrun",
    "distributed.launcher.api": "launcher.elastic",
    "distributed.run": "launcher.torchrun",
    "distributed.optim.post_localSGD_optimizer": "distributed.algorithms.model_averaging",
    "multiprocessing.spawn": "multiprocessing",
    "nn.modules.channelshuffle": "nn.modules.fold",
    "nn.modules.flatten": "nn.modules.linear",
    "nn.modules.instancenorm": "nn.modules.batchnorm",
    "nn.modules.pixelshuffle": "nn.modules.fold",
    "nn.modules.sparse": "nn.modules.embedding",
    "nn.modules.sync_batchnorm": "distributed.ddp.sync_batchnorm",
    "optim.adadelta": "optim.rmsprop",
    "optim.adagrad": "optim.rmsprop",
    "optim.adamax": "optim.adam",
    "optim.adamw": "optim.adam",
    "optim.nadam": "optim.adam",
    "optim.radam": "optim.adam",
    "utils._contextlib": "compat._contextlib",
    "utils.data._utils.collate": "utils.data.collate",
    "utils.data._utils.pin_memory": "utils.data.pinning",
    **{
        name: home
        for home, names in {
            "compat.cpu.amp": "cpu.amp.autocast_mode cpu.amp.grad_scaler",
            "compat.jit": "jit._async jit._freeze jit._script jit._serialization jit._trace",
            "extras.masked": "masked._ops",
            "multiprocessing": "multiprocessing.pool multiprocessing.queue",
            "ops.signal.windows": "signal.windows.windows",
            "sparse": "cuda.sparse sparse.semi_structured",
            "utils.benchmark": "utils.benchmark.utils utils.benchmark.utils.common utils.benchmark.utils.timer",
        }.items()
        for name in names.split()
    },
    **{
        f"distributions.{name}": f"extras.distributions.{home}"
        for home, names in {
            "binary": "bernoulli binomial continuous_bernoulli geometric negative_binomial",
            "categorical": "multinomial one_hot_categorical",
            "covariance": "multivariate_normal wishart",
            "dirichlet": "beta",
            "gamma": "chi2 fishersnedecor studentT",
            "location_scale": "cauchy gumbel laplace normal",
            "rates": "exponential poisson",
            "relaxed": "relaxed_bernoulli relaxed_categorical",
            "transformed_families": "half_cauchy half_normal inverse_gamma kumaraswamy log_normal logistic_normal "
            "pareto weibull",
        }.items()
        for name in names.split()
    },
}
"""Name below this package -> the module that it stands for, likewise; modules below the one are below the other."""

PAGES = {
    "_C._distributed_c10d": "from ..distributed import *\nfrom ..distributed.ddp.reducer import Reducer",
    # A vmap takes `x[i]` as it is, where `i` is a tensor without dimensions.
    "_dynamo._trace_wrapped_higher_order_op": "from contextlib import nullcontext as TransformGetItemToIndex",
    "_dynamo.utils": "from ..compat.compiler import disable_cache_limit, is_compile_supported\n"
    "from ..compat.switches import counters, maybe_enable_compiled_autograd, warn_once",
    "_inductor": "from ..compat.compiler import cudagraph_mark_step_begin",
    "_vmap_internals": "from ..func import vmap, vmap as _vmap",
    "autograd.profiler_util": "from ..profiler.events import EventList, FunctionEvent, FunctionEventAvg, Interval\n"
    "from ..profiler.table import duration as _format_time, size as _format_memory",
    "distributed.algorithms._checkpoint": "",
    "distributed.algorithms._checkpoint.checkpoint_wrapper": "from ..distributed.algorithms.checkpoint_wrapper import "
    "ActivationWrapper, CheckpointImpl, CheckpointWrapper, OffloadWrapper, apply_activation_checkpointing, checkpoint_wrapper, offload_wrapper",
    "distributed.constants": "from ..distributed.backends import default_pg_timeout",
    "_custom_ops": "",
    "_jit_internal": "from ..compat.jit import Final, _copy_to_script_wrapper, _overload, _overload_method, export, "
    "ignore, is_scripting, unused\nfrom ..compat.jit.annotations import Any, BroadcastingList1, BroadcastingList2, "
    "BroadcastingList3, BroadcastingList4, BroadcastingList5, BroadcastingList6, Dict, List, Optional, Tuple, Union",
    "_VF": "from ..nn.functional.recurrent import gru, gru_cell, lstm, lstm_cell, rnn_relu, rnn_relu_cell, rnn_tanh, rnn_tanh_cell\n"
    "from ..nn.functional.underlying import embedding_bag, norm_except_dim, _weight_norm",
    "_library.infer_schema": "from ..library.schema import infer_schema",
    "_tensor_str": "from ..core.printing import PRINT_OPTS, _add_suffixes, _tensor_str, printoptions, set_printoptions",
    "_ops": "from ..library.aten import Aten as _OpNamespace, OpOverload, OpOverloadPacket\nfrom ..compat.absent import HigherOrderOperator",
    "distributed.distributed_c10d": "from ..distributed import *\n"
    "from ..distributed.process_group import GroupMember, default_group as _get_default_group, "
    "get_global_rank as _get_global_rank, is_outside as _rank_not_in_group\n"
    "from ..distributed.older_names import STORE_BASED_BARRIER_PREFIX, _broadcast_coalesced, _coalescing_manager, "
    "_CoalescingManager, _get_default_store, _get_group_size, _get_pg_default_device, _get_process_group_name, "
    "_object_to_tensor, _resolve_process_group, _set_pg_timeout, _store_based_barrier, _tensor_to_object",
    "distributed.elastic": "",
    "distributed.elastic.multiprocessing": "from ..launcher.start_processes import DefaultLogsSpecs, LogsDest, LogsSpecs, "
    "MultiprocessContext, PContext, ProcessFailure, RunProcsResult, SignalException, Std, SubprocessContext, start_processes, to_map",
    "distributed.launcher": "from ..launcher.elastic import LaunchConfig, elastic_launch, launch_agent",
    "distributed.optim": "from ..distributed.algorithms.model_averaging import PostLocalSGDOptimizer\n"
    "from ..distributed.ddp.zero import ZeroRedundancyOptimizer\nfrom ..compat.absent import DistributedOptimizer",
    "distributed._composable.replicate_with_fsdp": "from ..distributed.fsdp.fully_shard import replicate\n"
    "from ..distributed.fsdp.sharded_module import ReplicateModule",
    "distributed._composable_state": "from ..distributed.fsdp.state import module_state as _get_module_state",
    "distributed._composable.fsdp": "from ..distributed.fsdp import *",
    "distributed.fsdp.sharded_grad_scaler": "from ..amp import GradScaler as ShardedGradScaler",
    "distributed._tensor": "from ..distributed.tensor import *",
    "distributed._tensor.device_mesh": "from ..distributed.device_mesh import DeviceMesh, init_device_mesh",
    "distributed._tensor.api": "from ..distributed.tensor import *",
    "distributed._tensor.placement_types": "from ..distributed.tensor.layout import Partial, Placement, Replicate, Shard, "
    "_StridedShard\nfrom ..distributed.tensor.spec import DTensorSpec, TensorMeta",
    "distributed._tensor.experimental": "from ..distributed.tensor.overriding import implicit_replication",
    "distributed.tensor._api": "from ..distributed.tensor import *",
    "distributed.tensor._dtensor_spec": "from ..distributed.tensor.spec import DTensorSpec, ShardOrderEntry, TensorMeta",
    "distributed.tensor._random": "from ..distributed.tensor.random import is_rng_supported_mesh, manual_seed",
    "distributed.tensor._utils": "from ..distributed.tensor.layout import compute_local_shape_and_global_offset\n"
    "from ..distributed.tensor.spec import compute_global_tensor_shape, normalize_to_torch_size",
    "distributed.tensor.experimental": "from ..distributed.tensor.overriding import implicit_replication\n"
    "from ..distributed.tensor.local_map import local_map\nfrom ..distributed.context_parallel import context_parallel\n"
    "from ..compat.absent import register_sharding",
    "distributed.tensor.experimental._attention": "from ..distributed.context_parallel import _cp_options, context_parallel, "
    "context_parallel_unshard, set_rotate_method",
    "distributed.tensor.parallel.api": "from ..distributed.tensor.parallel import parallelize_module",
    "distributed.tensor.parallel.style": "from ..distributed.tensor.parallel import *\n"
    "from ..distributed.tensor import distribute_module",
    "distributed.tensor.placement_types": "from ..distributed.tensor.layout import Partial, Placement, Replicate, Shard, _StridedShard",
    "distributed.utils": "from ..distributed.ddp.replica_check import sync_module_states as _sync_module_states",
    "functional": "from .. import atleast_1d, atleast_2d, atleast_3d, block_diag, broadcast_shapes, broadcast_tensors, "
    "cartesian_prod, cdist, chain_matmul, einsum, istft, lu, meshgrid, norm, pca_lowrank, split, stft, svd_lowrank, "
    "tensordot, unique, unique_consecutive, unravel_index\nfrom ..nn import functional as F",
    "nn.parallel.distributed": "from ..distributed.ddp.data_parallel import DistributedDataParallel\n"
    "from ..distributed.ddp.mixed_precision import _MixedPrecision",
    "utils.data._utils": "from ..utils.data.pool import HAS_NUMPY, MP_STATUS_CHECK_INTERVAL",
    "utils.data._utils.worker": "from ..utils.data.worker import WorkerInfo, get_worker_info\n"
    "from ..utils.data.seeding import _generate_state\n"
    "from ..compat.absent import ManagerWatchdog, _IterableDatasetStopIteration, _ResumeIteration",
    "utils.dlpack": "from ..ops.creation.dlpack import DLDeviceType, from_dlpack, to_dlpack",
    "utils.model_zoo": "from ..compat.hub import load_state_dict_from_url as load_url, tqdm",
}
"""Modules that have names of others only, as the stub of a package below this one."""

_ROOMS = ("compat.", "core.", "extras.", "files.", "launcher.", "library.", "ops.", "profiler.")
"""Where modules lie that programs know by other names. Any other home is known by its own name, too."""

_CALLED = {home: name for name, home in reversed(MODULES.items()) if home.startswith(_ROOMS)}


def home(name: str) -> str | None:
    """The module that `name` stands for, both below this package; None for a name that stands for itself."""
    above = name
    while above and above not in MODULES:
        above = above.rpartition(".")[0]
    return MODULES[above] + name[len(above) :] if above else None


def called(name: str) -> str:
    """The name, below this package, by which programs know the module `name`: the inverse of `home`."""
    above = name
    while above and above not in _CALLED:
        above = above.rpartition(".")[0]
    return _CALLED[above] + name[len(above) :] if above else name


@cache
def page(name: str) -> ModuleType | None:
    """A module with the names of others, if `name` is one."""
    if name not in PAGES:
        return None
    return new_face(
        f"{ROOT}.{name}",
        f"`torch.{name}`: names of what lies elsewhere here.",
        homes(f"{ROOT}.page", PAGES[name]),
    )
