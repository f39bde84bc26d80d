"""The benchmark of layers runs to its end and prints a ratio for every step that is asked for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "benchmarks" / "layers.py"

pytestmark = pytest.mark.torch


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_every_step_is_compared():
    pytest.importorskip("torch", reason="PyTorch, to compare with, is not installed")
    done = benchmark("--steps", "1", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    compared = re.findall(r"^(\S.*?)  .*PyTorch .*ratio +[\d.]+  \([\d.]+ to [\d.]+\)$", done.stdout, re.M)
    families = {"Linear", "Conv2d 3x3", "BatchNorm2d", "LSTM", "MultiheadAttention", "CrossEntropyLoss"}
    assert families <= set(compared)
    assert done.stdout.splitlines()[-1].startswith("above 2: ")


def test_a_part_of_the_names_chooses_and_none_is_refused():
    pytest.importorskip("torch", reason="PyTorch, to compare with, is not installed")
    done = benchmark("--only", "tanh", "--steps", "1", "--rounds", "1")
    compared = {line.split()[0] for line in done.stdout.splitlines() if " ratio " in line}
    assert compared == {"Hardtanh", "Tanh", "Tanhshrink"}, done.stderr
    assert "no step is called so" in benchmark("--only", "Conv9d").stderr
