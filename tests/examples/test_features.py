"""The short examples, each on some ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from matrices import thinned

FEATURES = Path(__file__).parents[2] / "examples" / "features"


def said(example: str, ranks: int, procs: int) -> str:
    command = [sys.executable, "-m", "ddpgrad.launcher", "-n", str(ranks), "--procs", str(procs)]
    done = subprocess.run([*command, str(FEATURES / example)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


SAYS = {
    "accumulate": "running statistics", "buckets": "the same bits with other buckets: True", "diloco": "%",
    "exact_evaluation": "66", "exact_mean": "loss", "fully_shard": "rank 0 keeps",
    "hybrid": "the bits of plain DDP: True", "one_decision": "of which 1 was left out",
    "overlapped_zero": "numbers of AdamW's state",
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("example", sorted(path.stem for path in FEATURES.glob("*.py")))
def test_every_example_runs(example, ranks):
    assert SAYS[example] in said(f"{example}.py", ranks, 2)


def test_fully_shard():
    assert "rank 0 keeps 2277 of 4554 parameters" in said("fully_shard.py", 2, 2)


@pytest.mark.full
def test_exact_mean():
    """The same bits on one, two and four processes, and the loss that one rank reaches."""
    outputs = {said("exact_mean.py", 4, procs) for procs in (1, 2, 4)}
    assert len(outputs) == 1
    loss = outputs.pop().partition("loss ")[2][:6]
    assert f"loss {loss}," in said("exact_mean.py", 1, 1)


@pytest.mark.parametrize("ranks", thinned([2, 4], 2))
def test_one_decision(ranks):
    told = said("one_decision.py", ranks, 2)
    assert "of which 1 was left out" in told and "medians of" in told


@pytest.mark.parametrize("ranks", thinned([2, 4], 2))
def test_exact_evaluation(ranks):
    """The same bits on one process and on several, and the loss of all samples."""
    told = {said("exact_evaluation.py", ranks, procs).removeprefix("[rank 0] ") for procs in (1, ranks)}
    assert len(told) == 1
    words = told.pop().split()
    assert words[3] == "66" and abs(float(words[1]) - float(words[-1])) < 1e-6


def test_accumulate():
    """One result on one rank and on four, which have eight and two micro-batches."""
    outputs = {said("accumulate.py", n, min(n, 2)).removeprefix("[rank 0] ") for n in (1, 4)}
    assert len(outputs) == 1 and "running statistics" in outputs.pop()


def test_diloco():
    told = {said("diloco.py", 4, procs) for procs in (1, 2)}
    assert len(told) == 1 and float(told.pop().removeprefix("[rank 0] ").partition("%")[0]) > 95
