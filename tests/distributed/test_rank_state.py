"""No state of one rank is seen by another rank of its process: what modules keep globally is known here by name."""

import contextlib
import gc
import importlib
import pkgutil
import sys
import types
import weakref
from collections import deque

import pytest

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.nn.parallel import DistributedDataParallel as DDP
from ddpgrad.utils.data import DataLoader, TensorDataset

CONTAINERS = (
    dict, list, set, bytearray, deque, weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary,
)  # fmt: skip

# Containers at module level that no rank may have for itself, each with the reason why that is right.
SHARED = {
    "autograd.accumulate.accumulators": "nodes by classes of leaves, which modules register at import",
    "autograd.nodes.observers": "whether any thread observes nodes; what it sees is per thread",
    "autograd.passes.carried": "thread-local states, listed at import",
    "backend.cpu.element_loops._ufuncs": "ufuncs that were compiled",
    "backend.cpu.element_loops._kept": "compiled loops of NumPy's ufuncs",
    "backend.cpu.inner_loops._own": "the ufuncs that have other loops",
    "backend.cpu.half_loops._wide": "the float32 loops of NumPy's ufuncs",
    "backend.cpu.kernel_cache._files": "descriptors of the process",
    "backend.elementary.shape._parts": "memory that flat optimizers split, by its address",
    "backend.cuda._devices": "what the machine has",
    "backend.cuda.library._found": "what the machine has",
    "backend.cuda.library._copies": "events of the machine's GPUs, by GPU and stream",
    "backend.cuda.pinned._read": "memory of the host that the machine's GPUs read",
    "autograd.crossing._levels": "numbers of vmaps, which hold nothing",
    "backend.cuda.library.used": "what of the machine's GPUs the process has computed on",
    "backend.device.capture_forgets": "functions of modules, which register them at import",
    "cuda.streams._lent": "memory of the machine's GPUs that streams use",
    "cuda.graphs._pools": "memory that graphs share because the program says so, by a handle that it keeps",
    "backend.registry._bodies": "the op table",
    "backend.registry._by_array_type": "backends, which have no state",
    "backend.registry._by_kind": "backends, which have no state",
    "backend.registry._tables": "tables of kernels, which have no state",
    "compat.settings._said": "warnings that the process has shown",
    "compat.switches.counters": "what a compiler would have counted: nothing",
    "core.classes.classes": "classes of tensors by those of arrays, which modules register at import",
    "core.classes.plain": "likewise",
    "core.modes.crossed": "whether any program has differentiated a vmap from outside",
    "core.modes.inferring": "whether any thread is in inference mode; which one is per thread",
    "core.modes.mapping": "whether any thread is in a vmap at once; levels are per thread",
    "core.modes.telling": "whether anybody may have to be told of ops; modes are per thread",
    "core.overrides.overriding": "whether anything may have to be asked; modes are per thread",
    "core.rank_local._all": "where the ranks' own values are",
    "core.spans.long_waits": "by rank",
    "distributed.fsdp.graph_places._groups": "groups of all ranks, by the address of their memory",
    "distributed.checkpoint.metadata_file._classes": "classes that files may have, which modules declare at import",
    "distributed.debug_level._chosen": "a level that programs set and read back, and that switches nothing",
    "distributed.protocol.progress._hosted": "by rank",
    "distributed.ranks.rank_environment._undo": "what the process was before it was shared by ranks",
    "distributed.transports.base._joined": "transports, of which a fork is to use none",
    "distributed.transports.base._movers": "transports of the process, each moved on by whoever waits on another",
    "extras.fx.patching._patchers": "whether anything is traced; other threads' calls, without proxies, are the ordinary ones",
    "extras.fx.patching._wrapped_fns_to_patch": "functions that programs mark at import, by name",
    "files.safe_globals._allowed": "what the program lets files name, as in PyTorch",
    "files.safe_globals._places": "classes by their places in PyTorch, which modules declare at import",
    "files.settings._options": "what the program sets around save and load, as in PyTorch",
    "files.settings._packages": "how the program names places in files, as in PyTorch",
    "library._ops": "ops that programs define at import, by name",
    "library.aten.members._before": "methods of Tensor, while any thread is in a dispatch mode",
    "library.aten.members._users": "likewise",
    "ops.dispatch.autocast.casting": "whether any thread is within autocast; which one is per thread",
    "ops.dispatch.timing._undo": "whether the kernels of the process are timed; what a profiler hears of is of its rank",
    "ops.dispatch.timing._users": "likewise",
    "core.modes.recorders": "who records the ops of an export, in which no collective runs",
    "nn.modules.registration.changes": "a count that lets wrappers look at their models again; once too often does no harm",
    "ops.methods._attached": "how many ops and functions Tensor has as methods already",
    "optim.hooks._of_all": "hooks of all optimizers, which the launcher registers for the process",
    "utils.data.collate.default_collate_fn_map": "PyTorch's table, which programs extend at import",
}


def load_all() -> None:
    """Import every module of the package that runs in ranks, and for which this machine has what it needs."""
    for module in pkgutil.walk_packages(torch.__path__, "ddpgrad."):
        if module.name.startswith("ddpgrad.launcher."):
            continue
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)


def containers() -> dict[str, object]:
    """Module-level containers of the package that are not written as constants."""
    found = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith("ddpgrad.") or not isinstance(module, types.ModuleType):
            continue
        if name.startswith("ddpgrad.launcher."):  # another test has loaded it
            continue
        for attribute, value in vars(module).items():
            constant = attribute.lstrip("_").isupper() or attribute.startswith("__")
            constant = constant or attribute == "_homes"  # of a face: its names, read from the stub
            if not constant and isinstance(value, CONTAINERS):
                found[f"{name.removeprefix('ddpgrad.')}.{attribute}"] = value
    return found


def train() -> None:
    dist.init_process_group()
    torch.manual_seed(dist.get_rank())
    model = DDP(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for (x,) in DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=4):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    dist.new_group([0])
    dist.destroy_process_group()


def test_module_level_containers_are_known():
    """A new one is rank-local (`rank_local.RankLocal`), a constant (upper case), or stands in SHARED with its reason."""
    load_all()
    dist.simulate(train, 2)
    # The same object may be imported elsewhere under its name.
    known = {id(value) for name, value in containers().items() if name in SHARED}
    unknown = {name for name, value in containers().items() if id(value) not in known}
    assert unknown == set()
    assert set(SHARED) <= set(containers()), "names that are gone"


def test_ranks_leave_nothing_behind():
    dist.simulate(train, 3)
    gc.collect()  # what other tests left
    before = sizes()
    dist.simulate(train, 3)
    gc.collect()
    assert sizes() == before


def sizes() -> dict[str, int]:
    """Of all containers but those that a kernel enters when its turn to be compiled has come."""
    kernels = ("backend.cpu.kernel_cache.", "backend.cpu.element_loops.")
    return {name: len(value) for name, value in containers().items() if not name.startswith(kernels)}  # type: ignore[arg-type]


@pytest.mark.parametrize("only_rank", [None, 0, 2])
def test_breakpoints_stop_one_rank_or_all(only_rank, monkeypatch):
    stopped = []
    monkeypatch.setattr(sys, "breakpointhook", lambda *_: stopped.append(dist.get_rank()))
    hook = sys.breakpointhook

    def program():
        dist.init_process_group()
        dist.barrier()
        breakpoint()
        dist.destroy_process_group()

    dist.simulate(program, 3, only_rank)
    assert sorted(stopped) == ([0, 1, 2] if only_rank is None else [only_rank])
    assert sys.breakpointhook is hook
    with pytest.raises(ValueError, match="only_rank must be a rank from 0 to 2"):
        dist.simulate(program, 3, 3)
