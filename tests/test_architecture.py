"""The order of layers and rooms, how large they may be, and what importing costs: the rules of `docs/design.md`."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import ddpgrad
from ddpgrad.core.face import homes

ROOT = Path(ddpgrad.__file__).parent
REPOSITORY = ROOT.parent

# From the bottom up, by the longest name that fits; a module may import its own layer and those below.
LAYERS = [
    [
        "core.errors",
        "core.environment",
        "core.rank_local",
        "core.spans",
        "core.missing",
        "core.face",
        "core.upcalls",
        "core.tables",
        "version",
    ],
    ["compat.aliases", "compat.absent", "compat.switches", "compat.finder", "compat.mps", "compat.xpu"],
    ["backend"],
    ["core"],
    ["autograd", "random", "cuda"],
    ["ops", "library"],
    ["sparse"],
    ["nn", "optim", "amp", "func", "utils", "files", "compat", "linalg", "fft", "special", "futures"],
    ["profiler"],
    ["extras"],
    ["distributed"],
    ["multiprocessing", "testing"],
    ["pytest_plugin"],
    [
        "launcher",
        "run",
        "distributed.checkpoint",
        "distributed.fsdp.fully_sharded_data_parallel",
        "distributed.fsdp.optimizer_state",
    ],
]
# The same within the larger packages.
ROOMS = {
    "distributed": [
        ["protocol", "mpi_shared_memory"],
        ["transports"],
        ["communicator"],
        ["trace", "failure"],
        ["store", "backends", "reduce_op", "collective_ops"],
        ["tcp_store"],
        ["rendezvous"],
        ["ranks"],
        ["process_group"],
        ["tensor_work", "device_mesh"],
        ["tensor"],
        ["objects"],
        ["agreement", "collectives", "messages", "monitored_barrier"],
        ["group_methods", "older_names"],
        ["ddp", "nn"],
        ["fsdp", "functional_collectives", "_composable", "context_parallel"],
        ["algorithms", "pipelining"],
        ["checkpoint"],
        ["fsdp.fully_sharded_data_parallel", "fsdp.optimizer_state"],
    ],
    "launcher": [
        ["torch_classes"],
        ["as_torch", "folder_lock", "preemption"],
        ["start_processes"],
        ["torch_shim", "checkpoint", "job"],
        ["elastic"],
        ["torchrun"],
        ["sharding", "run_folder", "loggers", "bench", "report"],
        ["shared_loop", "cli"],
        ["__main__"],
    ],
    "nn": [["parameter", "init", "functional", "common_types", "attention", "_reduction"], ["modules"], ["parallel", "utils"]],
    "ops": [
        ["dispatch"],
        ["creation", "elementwise", "indexing", "linalg", "reduction", "shape"],
        ["layers", "signal"],
        ["methods"],
    ],
}  # fmt: skip
# (importer, imported) that go upwards on purpose, each with its reason.
ALLOWED = {
    ("nn.modules.rnn", "nn.utils.rnn"),  # packed sequences, which PyTorch has among its utilities
    ("utils.data.distributed", "distributed"),  # rank and world size as defaults, on use
    ("utils.data.tar", "distributed"),  # likewise
    ("random", "core.tensor"),
    ("cuda", "ops"),  # classes such as cuda.FloatTensor, on use
    ("cuda.amp", "amp"),  # the former names of what is in amp
    ("ops.creation.factories", "random"),
}

MOST_ENTRIES = 38
MOST_LINES = 400


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its name below it; the launcher's folder is `ddpgrad/launcher`."""
    found = {}
    for folder, above in ((ROOT, ""), (ROOT / "launcher", "launcher.")):
        for path in folder.rglob("*.py"):
            name = above + ".".join(path.relative_to(folder).with_suffix("").parts)
            if path.is_relative_to(ROOT / "launcher") == bool(above):
                found[name.removesuffix("__init__").rstrip(".")] = path
    return found


def place(module: str, order: list[list[str]]) -> int:
    """Where a module stands in an order, by the longest name that fits; the page of a package stands above all."""
    fits = {
        len(name): i for i, names in enumerate(order) for name in names if f"{module}.".startswith(f"{name}.")
    }
    return fits[max(fits)] if fits else len(order)


@cache
def imported(name: str) -> set[str]:
    """The modules of the package that module `name` imports at run time, by their names below it."""
    tree = ast.parse(modules()[name].read_text())
    package = name.split(".") if modules()[name].name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in _run_time(tree):
        if isinstance(node, ast.Import):
            found.update(
                alias.name.split(".", 1)[-1] for alias in node.names if alias.name.startswith("ddpgrad.")
            )
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = [p for p in package if p][: len(package) - (node.level - 1)]
                home = ".".join([*base, *([node.module] if node.module else [])])
            elif (node.module or "").split(".")[0] == "ddpgrad":
                home = (node.module or "").partition(".")[2]
            else:
                continue
            below = [f"{home}.{alias.name}" if home else public_home(alias.name) for alias in node.names]
            found.update(module if module in modules() else home for module in below)
    return found - {""}


@cache
def _public() -> dict[str, tuple[str, str]]:
    return homes("ddpgrad", (ROOT / "__init__.pyi").read_text())


def public_home(name: str) -> str:
    """The module below the package that a name of the package itself, `from ... import name`, comes from."""
    return _public().get(name, (name, ""))[0].removeprefix("ddpgrad.")


def _run_time(tree: ast.AST) -> list[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING:`, which cost nothing at run time."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            skipped.update(part for statement in node.body for part in ast.walk(statement))
    return [node for node in ast.walk(tree) if node not in skipped]


def allowed(name: str, other: str) -> bool:
    return any(f"{name}.".startswith(f"{a}.") and f"{other}.".startswith(f"{b}.") for a, b in ALLOWED)


def test_imports_point_down():
    wrong = []
    for name in modules():
        if not name:
            continue
        assert place(name, LAYERS) < len(LAYERS), f"{name} is in no layer; add it to LAYERS where it belongs"
        for other in imported(name):
            if place(other, LAYERS) > place(name, LAYERS) and not allowed(name, other):
                wrong.append(f"{name} imports {other}")
    assert not wrong, "a lower layer imports a higher one:\n" + "\n".join(sorted(wrong))


@pytest.mark.parametrize("room", ROOMS)
def test_imports_within_a_room_point_down(room):
    order = [[f"{room}.{name}" for name in names] for names in ROOMS[room]]
    wrong = []
    for name in modules():
        for other in imported(name) if name.startswith(f"{room}.") else ():
            up = place(other, order) > place(name, order)
            if other.startswith(f"{room}.") and up and not allowed(name, other):
                wrong.append(f"{name} imports {other}")
    assert not wrong, f"a lower part of {room} imports a higher one:\n" + "\n".join(sorted(wrong))


def test_circles_of_imports_stay_small():
    """Imports within functions counted: who reads one file of a circle needs to have the others in mind."""
    graph = {name: imported(name) & modules().keys() for name in modules()}
    reach = {name: _reached(graph, name) for name in graph}
    circles = {frozenset(b for b in reach[a] if a in reach[b]) | {a} for a in graph}
    largest = max(circles, key=len)
    assert len(largest) <= 9, sorted(largest)


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_rooms_and_files_have_a_size():
    entries = [path.name for path in ROOT.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= MOST_ENTRIES, sorted(entries)
    doors = {path.name for path in (ROOT / "ops").iterdir()} - {"__pycache__", "__init__.py"}
    assert len(doors) <= 10, sorted(doors)
    lines = {
        str(path.relative_to(REPOSITORY)): len(path.read_text().splitlines())
        for folder in ("ddpgrad", "launcher", "tests", "examples")
        for path in (REPOSITORY / folder).rglob("*.py")
    }
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}, "split the file"


def test_only_one_module_reads_the_environment():
    readers = [
        name
        for name, path in modules().items()
        if "os.environ" in path.read_text() or "os.getenv" in path.read_text()
    ]
    assert readers == ["core.environment"]


def test_launcher_uses_public_names():
    private = []
    for name in modules():
        for node in ast.walk(ast.parse(modules()[name].read_text())) if name.startswith("launcher") else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ddpgrad"):
                names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
                private += [f"{name}: {n}" for n in names if n.startswith("_")]
    assert not private


def loaded(code: str, *arguments: str) -> list[str]:
    """The modules that are loaded when `code` has run in an interpreter of its own."""
    ended = f"{code}\nimport sys; print(*sys.modules)"
    command = [sys.executable, "-c", ended, *arguments]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    return out.splitlines()[-1].split()


def ours(names: list[str]) -> list[str]:
    return [name for name in names if name.partition(".")[0] == "ddpgrad"]


HELP = """
from ddpgrad.launcher.cli import ddprun
try:
    ddprun.main()
except SystemExit:
    pass
"""

TRAIN = """
import ddpgrad as torch
from ddpgrad import nn
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad.nn.parallel import DistributedDataParallel
from ddpgrad.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group()
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(16, 4), torch.randint(0, 3, (16,)))
for x, y in DataLoader(data, 8, sampler=DistributedSampler(data)):
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


def test_importing_costs_nothing_that_is_not_used():
    heavy = {"numba", "scipy", "cupy", "mpi4py", "matplotlib", "torch", "tqdm"}
    names = loaded("import ddpgrad, ddpgrad.launcher")
    assert len(ours(names)) <= 12 and not heavy & set(names), ours(names)
    assert len(ours(loaded("from ddpgrad import environment"))) <= 12
    assert len(ours(loaded(HELP, "--help"))) < 60


def test_a_rank_loads_what_it_uses(tmp_path):
    script = tmp_path / "train.py"
    ended = "import os, pathlib, sys; pathlib.Path('loaded.' + os.environ['RANK']).write_text(' '.join(sys.modules))"
    script.write_text(f"{TRAIN}\n{ended}")
    ddprun = [sys.executable, "-m", "ddpgrad.launcher", "-n", "2", str(script)]
    subprocess.run(ddprun, cwd=tmp_path, check=True, capture_output=True, timeout=600)
    ranks = [ours(path.read_text().split()) for path in sorted(tmp_path.glob("loaded.*"))]
    assert len(ranks) == 2
    # One of them compiles what the cache lacks.
    ranks = [[name for name in names if not name.endswith(".kernel_compiler")] for names in ranks]
    assert max(len(names) for names in ranks) < 224, ranks[0]
    assert "ddpgrad.backend.cpu.half_loops" not in ranks[0], "a program without 16-bit floats pays for them"


@pytest.mark.parametrize(
    "first", ["files.serialization", "utils.data", "distributed", "nn", "optim", "random"]
)
def test_a_tensor_has_its_methods_whatever_was_imported_first(first):
    code = f"import ddpgrad.{first}\nimport ddpgrad as torch; assert (torch.get_rng_state() + 1).sum()"
    assert "ddpgrad.ops" in loaded(code)


def test_every_fused_cpu_kernel_exists():
    from ddpgrad.backend.registry import backend_of

    backend = backend_of("cpu")
    for name in backend._families:
        assert callable(backend.find(name)), name
