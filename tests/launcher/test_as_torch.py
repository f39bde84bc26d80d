"""ddprun --as-torch: an unchanged PyTorch script runs, and an error names a missing part."""

from importlib.util import find_spec

import pytest
from matrices import thinned

without_torchvision = pytest.mark.skipif(
    find_spec("torchvision") is not None, reason="torchvision itself is installed"
)

# A script as PyTorch's users write them: nothing in it knows ddpgrad.
TRAIN = """\
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim.lr_scheduler
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
import torch.backends.cudnn as cudnn

cudnn.benchmark = True
assert int(torch.__version__.split(".")[0]) >= 2
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank = dist.get_rank()
device = torch.device(f"cuda:{rank}" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = TensorDataset(torch.randn(32, 4), torch.arange(32) % 2)
sampler = DistributedSampler(data)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
total = sum(p.sum() for p in model.parameters()).detach()
gathered = [torch.zeros_like(total) for _ in range(dist.get_world_size())]
dist.all_gather(gathered, total)
assert all(torch.equal(g, total) for g in gathered)
print("trained", torch.nn is nn, type(total).__module__)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("procs", thinned(["2", "1"], "2"))
def test_a_pytorch_script_trains_unchanged(ddprun, procs):
    ddprun.script(TRAIN, prelude="")
    result = ddprun.run("--as-torch", "-n", "2", "--procs", procs, "script.py")
    assert result.code == 0, result.err
    assert result.out.count("trained True torch") == 2


FORMER_PLACES = """\
import torch
import torch.distributed.distributed_c10d as c10d
import torchvision.transforms.functional
from torch.functional import einsum
from torch.nn import _reduction
from torch.utils.data.dataloader import _collate_fn_t
from torchvision.datasets.mnist import MNIST
from torchvision.transforms import transforms

assert torch.functional.einsum is torch.einsum is einsum
assert (_reduction.get_enum("sum"), _reduction.legacy_get_string(None, False, emit_warning=False)) == (2, "none")
c10d.init_process_group("gloo")
assert c10d._get_default_group().size() == 1 and not c10d._rank_not_in_group(None)
assert transforms.Compose is torchvision.transforms.Compose and torchvision.datasets.MNIST is MNIST
assert transforms.functional is torchvision.transforms.functional
import functorch
assert functorch.vmap is torch.func.vmap and torch.Tensor.__module__ == torch.Generator.__module__ == "torch"
from torch.torch_version import TorchVersion
assert isinstance(torch.__version__, TorchVersion) and "2.9" < torch.__version__ < "10.0"
assert torch.__version__ >= (1, 13) and torch.__version__ > "2.0.0a0" and torch.__version__ != "2.13"
import io, numpy
file = io.BytesIO()
data = {"version": torch.__version__, "weight": torch.nn.Parameter(torch.ones(2)), "random": numpy.random.default_rng(0)}
torch.save(data, file)
file.seek(0)
read = torch.load(file, weights_only=False)
assert type(read["version"]) is str and type(read["weight"]) is torch.nn.Parameter
assert read["random"].random() == numpy.random.default_rng(0).random()

import inspect, pickle
from torch.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe
kinds = torch.nn.Linear, torch.nn.LSTM, torch.nn.Parameter, torch.optim.AdamW, torch.utils.data.TensorDataset, torch.distributions.Normal
rooms = [kind.__module__.rpartition(".")[0] for kind in kinds]
assert rooms == ["torch.nn.modules"] * 2 + ["torch.nn", "torch.optim", "torch.utils.data", "torch.distributions"], rooms
assert all(inspect.getsource(kind) and pickle.loads(pickle.dumps(kind)) is kind for kind in kinds)
try:
    torch.optim.AdamW([torch.ones(1)]).load_state_dict(torch.optim.SGD([torch.ones(1)], lr=0.1).state_dict())
except ValueError as error:
    assert "of another optimizer than AdamW" in str(error)
else:
    raise AssertionError("the state of another optimizer was taken")
file = io.BytesIO()
torch.save(torch.nn.Sequential(torch.nn.Linear(2, 2)), file)
file.seek(0)
assert type(torch.load(file, weights_only=False)[0]) is torch.nn.Linear
print("found")
"""


@without_torchvision
def test_names_are_found_in_the_files_where_pytorch_and_torchvision_define_them(ddprun):
    ddprun.script(FORMER_PLACES, prelude="")
    result = ddprun.run("--as-torch", "script.py")
    assert (result.code, result.out.strip()) == (0, "found"), result.err


MISSING = """\
import torch, torchvision
for text in (
    "import torch.nn.functinal",
    "import torch.sparce.things",
    "from torch import randm",
    "from torch.nn import Linaer",
    "from torch.utils.tensorboard import SumaryWriter",
    "from torchvision import modles",
    "from torchvision.models import resnet50; resnet50()",
    "torch.optim.AdmW",
    "torch.hub.load('a', 'b')",
):
    try:
        exec(text)
    except (ImportError, AttributeError, NotImplementedError) as error:
        print(type(error).__name__, error)
"""


@without_torchvision
def test_what_is_missing_is_named_with_the_nearest_names(ddprun):
    ddprun.script(MISSING, prelude="")
    result = ddprun.run("--as-torch", "script.py")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    for line, words in zip(
        lines,
        [
            ["ModuleNotFoundError", "torch.nn.functinal", "did you mean functional"],
            ["ModuleNotFoundError", "torch.sparce"],
            ["ModuleNotFoundError", "'randm' from 'torch'", "did you mean", "randn"],
            ["ModuleNotFoundError", "'Linaer' from 'torch.nn'", "did you mean Linear"],
            ["ModuleNotFoundError", "'SumaryWriter'", "did you mean SummaryWriter"],
            ["ImportError", "modles"],
            ["NotImplementedError", "torchvision.models.resnet50", "install torchvision"],
            ["AttributeError", "AdmW", "did you mean", "AdamW"],
            ["NotImplementedError", "torch.hub.load", "safetensors"],
        ],
        strict=True,
    ):
        assert all(word in line for word in words), line


LIBRARY = """\
import importlib.metadata
import importlib.util
import sys
import torch
import torch.distributed.tensor.parallel
from torch._subclasses.fake_tensor import is_fake
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.jit.annotations import BroadcastingList2, List
from torch.nn.parallel.distributed import DistributedDataParallel
from torch.utils._pytree import tree_map

@torch.fx.wrap
def sizes(x: BroadcastingList2[int]) -> "torch.fx.Node":
    return tree_map(lambda n: n + 1, [x])

assert importlib.metadata.version("torch") == torch.__version__, importlib.metadata.version("torch")
assert importlib.util.find_spec("torch") and importlib.util.find_spec("torch.fx.experimental.symbolic_shapes")
assert sizes(1) == [2] and not isinstance(torch.nn.Linear(1, 1), ShapeEnv) and not is_fake(torch.ones(1))
assert torch.torch.nn.parallel.DistributedDataParallel is DistributedDataParallel
for text in ("ShapeEnv()", "from torch.distributed.fsdp import FSPD", "import torch.distributed.fspd"):
    try:
        exec(text)
    except (ImportError, NotImplementedError) as error:
        print(type(error).__name__, error)

import torchvision
from torchvision import transforms
from torchvision.models import one_layer
print(torchvision.__version__, one_layer()(torch.ones(1, 2)).shape, transforms.HERE)
"""


def test_libraries_that_name_absent_parts_import_and_an_installed_torchvision_is_used(
    ddprun, tmp_path, monkeypatch
):
    for name, text in {
        "torchvision/__init__.py": "from .version import __version__",
        "torchvision/version.py": "__version__ = '9.9'",
        "torchvision/transforms/__init__.py": "HERE = 'installed'",
        "torchvision/models/__init__.py": "from .linear import one_layer",
        "torchvision/models/linear.py": "import torch\ndef one_layer(): return torch.nn.Linear(2, 3)",
        "torchvision-9.9.dist-info/METADATA": "Metadata-Version: 2.1\nName: torchvision\nVersion: 9.9\n",
    }.items():
        (tmp_path / "installed" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "installed" / name).write_text(text)
    ddprun.environment["PYTHONPATH"] = str(tmp_path / "installed")
    ddprun.script(LIBRARY, prelude="")
    result = ddprun.run("--as-torch", "script.py")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[0].startswith(
        "NotImplementedError torch.fx.experimental.symbolic_shapes.ShapeEnv: ddpgrad has none"
    )
    assert (
        "'FSPD' from 'torch.distributed.fsdp'" in lines[1]
        and "No module named 'torch.distributed.fspd'" in lines[2]
    )
    assert lines[3] == "9.9 torch.Size([1, 3]) installed"


WORKERS = """\
import torch
from torchvision import transforms
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __init__(self):
        self.change = transforms.Normalize([0.0], [2.0])
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return self.change(torch.full((1, 1, 1), float(i))).square().sum(), f"{torch.__name__} {torch.__spec__.name}"

if __name__ == "__main__":
    values, names = zip(*DataLoader(Squares(), batch_size=4, num_workers=2))
    print(torch.cat(values).tolist(), {name for batch in names for name in batch})
"""


def test_workers_of_a_loader_import_the_same_torch(ddprun):
    ddprun.script(WORKERS, prelude="")
    result = ddprun.run("--as-torch", "script.py")
    assert result.code == 0, result.err
    assert result.out.strip() == f"{[i * i / 4 for i in range(8)]} {{'torch ddpgrad'}}"


SPAWN = """\
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def main(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    assert (total.item(), torch.__name__, torch.__spec__.name) == (3.0, "torch", "ddpgrad")
    dist.barrier()
    if rank == 1:
        raise ValueError("on purpose")
    dist.barrier()

if __name__ == "__main__":
    try:
        mp.spawn(main, args=(2,), nprocs=2, join=True)
    except mp.ProcessRaisedException as error:
        print("process", error.error_index, str(error).strip().splitlines()[-1])
"""


def test_spawned_processes_are_the_ranks_of_one_job_and_the_first_that_fails_is_named(ddprun):
    ddprun.script(SPAWN, prelude="")
    result = ddprun.run("--as-torch", "script.py")
    assert result.code == 0, result.err
    assert result.out.strip() == "process 1 ValueError: on purpose"
