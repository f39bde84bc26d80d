"""Programs of libraries above PyTorch: run as they are with PyTorch, and in its place, they print the same."""

import json
import math
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from torchruns import pytorchs_torchrun

PROGRAMS = Path(__file__).with_name("libraries")
DDPRUN = [sys.executable, "-m", "ddpgrad.run", "--as-torch", "-n"]
TOLERANCE = 1e-4
ROUNDED = 2e-3
"""Of what is computed in bfloat16, where a sum in another order may round to a neighbour."""


def said(command: list[str], folder: Path, **more: str) -> dict[str, list[Any]]:
    """The values that the ranks of a program printed under each key."""
    folder.mkdir()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | more
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    # A thread of Gloo in PyTorch may abort a process that has ended, of ranks that a program starts itself.
    assert not done.returncode or "SIGABRT" in done.stderr, done.stderr[-4000:]
    lines = [json.loads(line.partition("=> ")[2]) for line in done.stdout.splitlines() if "=> " in line]
    found: dict[str, list[Any]] = {}
    for key, values in lines:
        found.setdefault(key, []).append(values)
    return found


def alike(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, float) and isinstance(other, (int, float)):
        return (
            math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance / 10)
            or one != one != other != other
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other, [tolerance] * len(one)))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[k], other[k], tolerance) for k in one)
    return one == other


@pytest.fixture(scope="module")
def with_torchvision(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What PyTorch's CPU build needs to load torchvision from PyPI, which is built for CUDA; libraries import it."""
    if find_spec("torchvision") is None:
        return {}
    if shutil.which("cc") is None:
        pytest.skip("no C compiler, without which PyTorch's CPU build cannot import torchvision")
    folder = tmp_path_factory.mktemp("no_cuda")
    for name in ("libcudart.so.13", "libc10_cuda.so", "libtorch_cuda.so"):
        versioned = [f"-Wl,--version-script,{PROGRAMS}/no_cuda.map"] if "cudart" in name else []
        make = ["cc", "-shared", "-fPIC", "-o", folder / name, PROGRAMS / "no_cuda.c", f"-Wl,-soname,{name}"]
        subprocess.run([*make, *versioned], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.mark.parametrize(
    ("program", "ranks", "library"),
    [
        ("trainer", 1, "lightning"),
        ("trainer", 2, "lightning"),
        ("fabric", 2, "lightning"),
        ("launched", 0, "lightning"),
        ("metrics", 2, "torchmetrics"),
        ("attention", 1, "x_transformers"),
        ("graphs", 1, "torch_geometric"),
        ("privacy", 1, "opacus"),
        ("privacy", 2, "opacus"),
        ("engines", 2, "ignite"),
        ("small", 1, "torchdiffeq"),
        ("probabilistic", 1, "gpytorch"),
        ("language", 1, "transformers"),
        ("finetune", 1, "transformers"),
        ("finetune", 2, "transformers"),
        ("accelerated", 2, "accelerate"),
        ("adapters", 1, "peft"),
        ("pictures", 1, "timm"),
        ("detection", 1, "torchvision"),
        ("medical", 1, "monai"),
        ("learner", 1, "fastai"),
    ],
)
def test_a_program_prints_what_it_prints_with_pytorch(
    program: str, ranks: int, library: str, tmp_path: Path, with_torchvision: dict[str, str]
) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed: pip install -r {PROGRAMS}/requirements.txt torch==2.13.0")
    script = str(PROGRAMS / f"{program}.py")
    start = pytorchs_torchrun(ranks) if ranks > 1 else [sys.executable]
    expected = said([*start, script], tmp_path / "torch", **with_torchvision)
    start = [*DDPRUN, str(ranks)] if ranks else [sys.executable]  # 0: the program starts its ranks
    found = said([*start, script], tmp_path / "ddpgrad", IN_PLACE_OF_PYTORCH="1")
    assert expected and found.keys() == expected.keys()
    for key, values in expected.items():
        # Ranks print in any order, and each begins with what tells it from the others.
        for one, other in zip(sorted(values, key=repr), sorted(found[key], key=repr), strict=True):
            tolerance = ROUNDED if "bf16" in key else TOLERANCE
            assert alike(one, other, tolerance), f"{key}: PyTorch {one}, here {other}"
