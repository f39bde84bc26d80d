"""The public faces: each name is listed once, is what its home has, and is known to type checkers, with its types."""

import ast
import inspect
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad.core.face import homes
from ddpgrad.nn import functional as F
from ddpgrad.ops import Tensor, load_all
from ddpgrad.ops.dispatch.declare import OPS
from ddpgrad.ops.dispatch.tensor_function import FUNCTIONS

load_all()
ROOT = Path(torch.__file__).parent
COVERAGE = ROOT.parent / "docs" / "coverage.md"


def faces() -> dict[str, Path]:
    """The stub of each package that is a face, the launcher's too, which lies behind a link."""
    found = {}
    for folder, above in ((ROOT, "ddpgrad"), (ROOT / "launcher", "ddpgrad.launcher")):
        for path in folder.rglob("__init__.pyi"):
            if folder == ROOT and path.is_relative_to(ROOT / "launcher"):
                continue
            found[".".join([above, *path.parent.relative_to(folder).parts])] = path
    return found


FACES = faces()
each_face = pytest.mark.parametrize("name", FACES)


def listed(name: str) -> list[str]:
    """The public names of a stub, as often as they stand there."""
    names: list[str] = []
    for node in ast.parse(FACES[name].read_text()).body:
        if isinstance(node, ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            names.append(ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target))
    return names


@each_face
def test_a_type_checker_sees_every_name(name):
    """It takes for private what is imported under another name than its own, or without `as`."""
    known: set[str] = set()
    for node in ast.parse(FACES[name].read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.name == "*" or alias.asname is not None, ast.unparse(node)
                own = alias.asname == alias.name
                assert own or alias.name == "*" or str(alias.asname).startswith("_"), ast.unparse(node)
                known.add(str(alias.asname))
        elif isinstance(node, ast.Assign):
            assert ast.unparse(node.value).split(".")[0] in known, ast.unparse(node)
        else:
            assert isinstance(node, ast.AnnAssign) or ast.get_docstring(ast.Module([node], [])), ast.unparse(
                node
            )


@each_face
def test_a_name_is_listed_once(name):
    names = listed(name)
    assert [n for n in set(names) - {"*"} if names.count(n) > 1] == []


@each_face
def test_every_name_is_what_its_home_has(name):
    face = import_module(name)
    for public, (home, inner) in homes(name, FACES[name].read_text()).items():
        value: Any = import_module(home)
        for part in inner.split(".") if inner else ():
            value = getattr(value, part) if hasattr(value, part) else import_module(f"{home}.{part}")
        shown = getattr(face, public)
        assert value in (shown, getattr(shown, "__wrapped__", None)), f"{name}.{public}"


@each_face
def test_dir_and_all_are_the_list(name):
    face = import_module(name)
    stub = homes(name, FACES[name].read_text())
    assert len(face.__all__) == len(set(face.__all__))
    assert set(face.__all__) == {n for n in stub if not n.startswith("_")}
    assert stub.keys() <= set(dir(face))
    others = {n for n in listed(name) if not n.startswith("_")} - {"*"} - stub.keys()
    assert all(hasattr(face, n) for n in others)


# Declared as methods only, as PyTorch has them.
ONLY_METHODS = {
    "apply_", "contiguous", "expand_as", "map2_", "map_", "reshape_as", "sum_to_size", "to", "type_as", "view", "view_as",
}  # fmt: skip


def test_every_declared_function_is_in_a_face():
    """Ops that are no methods are inner parts of functions, which are declared themselves."""
    namespaces = (torch, F, torch.linalg, torch.fft, torch.special)
    public = {name for namespace in namespaces for name in dir(namespace)}
    values = {id(getattr(n, name)) for n in namespaces for name in dir(n)}
    declared = {name: op.public for name, op in OPS.items() if op.method and "." not in name}
    declared |= {name: function.call for name, function in FUNCTIONS.items()}
    hidden = {n for n, call in declared.items() if n not in public and id(call) not in values}
    assert hidden == ONLY_METHODS


def test_a_name_is_declared_once():
    """An op whose public function takes other arguments is declared with `public`, not again as a function."""
    assert OPS.keys() & FUNCTIONS.keys() == set()


def test_functions_of_layers_repeat_no_op():
    """An op is served as it is declared, but where PyTorch has a name with other arguments in `nn.functional`."""
    repeated = {
        name for name in F.__all__ if name in OPS and getattr(F, name).__dict__.get("op") is not OPS[name]
    }
    assert repeated == {"log_softmax", "relu", "softmax", "unfold"}


def test_in_place_functions_are_methods_and_need_no_ops_before():
    names = [n for n in torch.__all__ if n.endswith("_") and hasattr(Tensor, n)]
    assert len(names) > 60
    assert all(getattr(torch, n) is getattr(Tensor, n) for n in names if not hasattr(F, n))
    code = "import ddpgrad; ddpgrad.relu_; ddpgrad.no_such_function_"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert "has no attribute 'no_such_function_'" in out.stderr.splitlines()[-1]


def named_on_the_coverage_page() -> dict[str, tuple[set[str], set[str]]]:
    """By namespace: the names that are here, and those that are not."""
    found = {}
    public = COVERAGE.read_text().split("## Public names")[1]
    for section in public.split("\n### torch")[1:]:
        here = re.search(r"^Here: (.*)\.$", section, re.MULTILINE)
        absent = re.findall(r"^\| (?:left out|missing) \| ([^|]*) \|", section, re.MULTILINE)
        names = set(here[1].split(", ")) if here else set()
        found[section.partition(":")[0].lstrip(".")] = (names, {n for a in absent for n in a.split(", ")})
    return found


@pytest.mark.parametrize("place", named_on_the_coverage_page())
def test_the_coverage_page_agrees(place):
    here, absent = named_on_the_coverage_page()[place]
    owner = import_module(f"ddpgrad.{place}".rstrip(".")) if place != "Tensor" else Tensor
    assert {name for name in here if not hasattr(owner, name)} == set()
    assert absent & set(dir(owner)) == set()


@pytest.mark.parametrize(
    ("page", "name", "meant"),
    [
        ("nn.modules.activation", "Softmax", "Softmax"),
        ("nn.modules.conv", "LazyConv2d", "LazyConv2d"),
        ("nn.modules.pooling", "AdaptiveAvgPool2d", "AdaptiveAvgPool2d"),
        ("nn.modules.instancenorm", "InstanceNorm1d", "InstanceNorm1d"),
        ("nn.modules.sparse", "EmbeddingBag", "EmbeddingBag"),
    ],
)
def test_modules_are_on_the_pages_where_pytorch_has_them(page, name, meant):
    assert getattr(import_module(f"ddpgrad.{page}"), name) is getattr(torch.nn, meant)


def test_a_wrong_name_is_told_the_nearest():
    for module, wrong, near in (
        ("ddpgrad.nn.modules.conv", "LazyConv2", "LazyConv2d"),
        ("ddpgrad.nn.modules.loss", "CrossEntropyLos", "CrossEntropyLoss"),
        ("ddpgrad", "choleski", "cholesky"),
        ("ddpgrad.linalg", "normm", "norm"),
        ("ddpgrad.optim.swa_utils", "SWLR", "SWALR"),
    ):
        with pytest.raises(AttributeError, match=f"did you mean .*{near}"):
            getattr(import_module(module), wrong)


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (Tensor.sum, "(input, dim=None, keepdim=False, dtype=None, *, out=None)"),
        (Tensor.add_, "(input, other, *former, alpha=1)"),
        (Tensor.exp_, "(input)"),
        (Tensor.addcmul_, "(input, tensor1, tensor2, *former, value=1)"),
        (Tensor.unsqueeze_, "(input, dim)"),
        (torch.add, "(input, other, *former, alpha=1, out=None)"),
        (torch.mm, "(input, mat2, *, out=None)"),
        (torch.split, "(tensor, split_size, dim=0)"),
        (torch.unbind, "(input, dim=0)"),
        (torch.fft.fft, "(input, n=None, dim=-1, norm=None, *, out=None)"),
        (F.relu, "(input, inplace=False)"),
    ],
)
def test_a_signature_shows_what_may_be_passed(function, shown):
    signature = inspect.signature(function)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(plain)) == shown


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.view != "several"])
def test_every_op_shows_its_parameters_and_out(name):
    op = OPS[name]
    assert tuple(inspect.signature(op.call).parameters) == (*op.params, "out")


def test_the_stub_of_tensor_is_written_anew():
    code = "from ddpgrad.core import stub; print(stub.text(), end='')"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    written = (ROOT / "core" / "tensor.pyi").read_text()
    assert run.stdout == written, "run `python -m ddpgrad.core.stub`"
    methods = re.findall(r"^    def ([a-z]\w*)\(self(.*)\) -> (.*): \.\.\.$", written, re.MULTILINE)
    assert len(methods) >= 550
    assert {n for n in dir(Tensor) if not n.startswith("_")} <= {n for n, _, _ in methods} | {"H", "T"}


WRONG = """
import ddpgrad as torch

x = torch.ones(2, 3)
x.sum().foo()
x.sum(dims=0)
x.exp_().bar()
torch.divide(x, 2).baz()
x.topk(3).indices.foo
first, second, third = torch.linalg.qr(x)
x.max().values[0]
torch.add(x, x, out=3)
torch.sum(x, 0, out=x).foo
torch.split(x, 1, out=x)
torch.relu(x, inplace=True)
"""

RIGHT = """
import ddpgrad as torch
import ddpgrad.distributions as D
from ddpgrad import datasets, onnx, transforms
from ddpgrad.errors import StallError

x = torch.ones(2, 3)
x.sum(dim=0, keepdim=True).item()
(2 - x @ x.T).relu_().float().unbind()[0].backward()
y: torch.Tensor = torch.relu_(torch.absolute(x))
kind: torch.dtype = torch.bool
values, indices = x.sort(descending=True)
U, S, Vh = torch.linalg.svd(x)
two: tuple[torch.Tensor, torch.Tensor] = torch.unique(x, return_counts=True)
y = x.max(dim=1).values + torch.median(x, 1).indices + x.max() + torch.min(x, y)
torch.max(x, 0, out=(values, indices)).values.add(1)
y = torch.mm(U, S, out=torch.add(x, y, out=y)) + torch.where(x > 0, x, 0) + x.size(0)
y = torch.nn.functional.relu(torch.relu(x, out=y), inplace=True)
y = D.Normal(0.0, 1.0).sample()
late: tuple[int, ...] = StallError("late").ranks
"""


def test_a_type_checker_finds_what_tensors_do_not_have(tmp_path):
    pytest.importorskip("pyright", reason="pyright is not installed")
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "right.py").write_text(RIGHT)
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, timeout=600)
    found = [d for d in json.loads(run.stdout)["generalDiagnostics"] if d["severity"] == "error"]
    lines = sorted((Path(d["file"]).name, d["range"]["start"]["line"]) for d in found)
    assert lines == [("wrong.py", line) for line in range(4, 15)], found
