"""The order of layers, and what importing costs: rules of `docs/design.md` that code must keep."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import ddpgrad

ROOT = Path(ddpgrad.__file__).parent
LAUNCHER = ROOT.parent / "launcher"

# From the bottom up; a module may import its own layer and those below.
LAYERS = [
    [
        "errors",
        "environment",
        "rank_local",
        "spans",
        "missing",
        "absent",
        "checks",
        "version",
        "hub",
        "mps",
        "xpu",
    ],
    ["backend"],
    ["modes"],
    ["_size", "_tensor", "printing", "return_types"],
    ["autograd", "random", "generator", "variates", "cuda"],
    ["ops", "library"],
    [
        "nn",
        "optim",
        "amp",
        "cpu",
        "func",
        "utils",
        "serialization",
        "safetensors",
        "torch_file",
        "onnx",
        "summary",
        "backends",
        "compiler",
        "fx",
        "_dynamo",
        "overrides",
        "_C",
        "jit",
        "profiler",
        "types",
        "accelerator",
        "__config__",
        "settings",
        "tensor_file",
        "linalg",
        "fft",
        "special",
        "functional",
        "sparse",
        "_utils",
        "distributions",
        "futures",
    ],
    ["transforms", "datasets"],
    ["distributed"],
    ["multiprocessing", "testing"],
    ["pytest_plugin"],
]
# (importer, imported) that go upwards on purpose, each with its reason.
ALLOWED = {
    ("cuda.amp", "amp"),  # the former names of what is in amp
    ("nn.parallel.distributed", "distributed"),  # the name where PyTorch users look for DDP
    ("nn.sync_batchnorm", "distributed"),  # statistics of all ranks, once there is a process group
    ("utils.data.distributed", "distributed"),  # rank and world size as defaults, on use
    ("utils.data.tar", "distributed"),  # likewise
    ("random", "_tensor"),
    ("ops.creation", "random"),
}


def layer(module: str) -> int:
    top = module.partition(".")[0]
    for i, names in enumerate(LAYERS):
        if top in names:
            return i
    raise AssertionError(f"module ddpgrad.{module} is in no layer; add it to LAYERS where it belongs")


def type_checking_only(tree: ast.AST) -> set[ast.AST]:
    """Import nodes under `if TYPE_CHECKING:`; they cost nothing at run time."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            found.update(ast.walk(node))
    return found


def imports(path: Path) -> list[str]:
    """The ddpgrad modules that a file imports at run time, as dotted names below ddpgrad."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    package = parts[:-1]
    tree = ast.parse(path.read_text())
    skipped = type_checking_only(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and node not in skipped:
            base = package[: len(package) - (node.level - 1)]
            if node.module:
                found.append(".".join((*base, node.module)))
            else:
                # What is no module comes from the package's own page, which is on top of all.
                names = [".".join((*base, alias.name)) for alias in node.names]
                found += [
                    n
                    for n in names
                    if (ROOT / n.replace(".", "/")).exists()
                    or (ROOT / f"{n.replace('.', '/')}.py").exists()
                    or base
                ]
    return found


def test_imports_point_down():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name == "__init__":
            continue
        for imported in imports(path):
            top = imported.split(".")[0]
            if layer(imported) > layer(name) and (name, top) not in ALLOWED:
                wrong.append(f"{name} imports {imported}")
    assert not wrong, "a lower layer imports a higher one:\n" + "\n".join(wrong)


def test_only_one_module_reads_the_environment():
    readers = [
        str(path.relative_to(ROOT.parent))
        for folder in (ROOT, LAUNCHER)
        for path in folder.rglob("*.py")
        if "os.environ" in path.read_text() or "os.getenv" in path.read_text()
    ]
    # host.py shows a debugger's or a script's own view; nothing else may look.
    assert readers == ["ddpgrad/environment.py"]


def test_launcher_uses_public_names():
    private = []
    for path in LAUNCHER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ddpgrad"):
                names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
                private += [f"{path.name}: {n}" for n in names if n.startswith("_")]
    assert not private


def test_import_is_light():
    code = (
        "import sys, ddpgrad, launcher;"
        "print([m for m in ('numba', 'scipy', 'cupy', 'mpi4py', 'matplotlib', 'torch', 'tqdm') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "[]"


def test_every_fused_cpu_kernel_exists():
    from ddpgrad.backend.registry import backend_of

    backend = backend_of("cpu")
    for name in backend._families:
        assert callable(backend.find(name)), name
