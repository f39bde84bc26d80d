"""The benchmark runs to its end and prints a ratio for everything that it compares."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "benchmarks" / "vs_torch.py"


def benchmark(*arguments: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.torch
def test_steps_and_all_reduces_are_compared():
    pytest.importorskip("torch", reason="PyTorch, to compare with, is not installed")
    done = benchmark("--models", "tiny_mlp", "all_reduce", "--ranks", "2", "--steps", "2", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    compared = re.findall(
        r"^(\S.*?)  .*(PyTorch|MPI) .*ratio +[\d.]+  \([\d.]+ to [\d.]+\)$", done.stdout, re.M
    )
    names = [name.strip() for name, _ in compared]
    assert names[0] == "tiny_mlp, 2 ranks"
    sizes = ["all-reduce 4 KB, 2 ranks", "all-reduce 1 MB, 2 ranks", "all-reduce 25 MB, 2 ranks"]
    assert list(dict.fromkeys(names[1:])) == sizes
    assert ("all-reduce 4 KB, 2 ranks", "MPI") in compared or "no mpiexec is installed" in done.stdout


def test_without_pytorch_it_says_what_to_install(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", HIDE_PYTORCH, str(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 1 and "pip install torch" in done.stderr


HIDE_PYTORCH = """
import importlib.util, runpy, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
