"""Trainings on the stand-in: the CPU's losses, and one result however the ranks' gradients travel."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import fakecuda
import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn

pytestmark = pytest.mark.fakegpu

TESTS = Path(__file__).parents[1]
STEPS = 8


def ddprun(*arguments: str, folder: Path | None = None) -> str:
    """What a job of two ranks prints."""
    done = subprocess.run(
        [sys.executable, "-m", "ddpgrad.launcher", "-n", "2", *arguments],
        capture_output=True, text=True, timeout=500, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def bits(checkpoints: Path, *options: str, procs: int = 2, backend: str | None = None) -> dict[str, Any]:
    """The losses of each step and the hash of the parameters that a small GPT ends with on the GPUs."""
    carried = ("--backend", backend) if backend else ()
    job = str(TESTS / "jobs" / "same_bits.py")
    told = ddprun("--procs", str(procs), job, "--device", "cuda", "--checkpoints", str(checkpoints),
                  "--steps", str(STEPS), *carried, *options)  # fmt: skip
    found = re.search(r"\{\"losses\".*\}", told)
    assert found, told[-2000:]
    return json.loads(found[0])


@pytest.fixture(scope="module")
def of_one_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    result = bits(tmp_path_factory.mktemp("one"), procs=1)
    assert len(result["losses"]) == STEPS and len(set(result["hashes"])) == 1
    return result


@pytest.mark.xdist_group("bits")
@pytest.mark.parametrize("backend", [None, "nccl"], ids=["staged", "nccl"])
def test_two_processes_give_the_bits_of_one(
    backend: str | None, of_one_process: dict[str, Any], tmp_path: Path
):
    assert bits(tmp_path, backend=backend) == of_one_process


@pytest.mark.xdist_group("bits")
def test_a_checkpoint_goes_on_with_the_same_bits(of_one_process: dict[str, Any], tmp_path: Path):
    bits(tmp_path, "--stop-after", "5", backend="nccl")
    assert bits(tmp_path, "--resume") == of_one_process


def network(kind: str) -> nn.Module:
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10)
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_a_training_is_the_cpus_and_never_waits(kind: str):
    courses = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(3)
        model = network(kind).to(device)
        x, y = torch.randn(4, 16, 1, 8, 8).to(device), torch.arange(16).to(device) % 10
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        torch.manual_seed(4)
        losses = []
        for step, batch in enumerate(x):
            if device == "cuda" and step == 2:  # what is compiled and allocated once is there
                before = fakecuda.counters()
            loss = F.cross_entropy(model(batch), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        if device == "cuda":
            after = fakecuda.counters()
            assert after["launches"] > before["launches"]
            assert after["synchronisations"] == before["synchronisations"]
            assert after["to_host"] == before["to_host"]
        courses.append([float(loss) for loss in losses])
    assert courses[1] == pytest.approx(courses[0], rel=1e-5)


def test_the_examples_run(tmp_path: Path):
    book = tmp_path / "book.txt"
    book.write_bytes(b"the quick brown fox jumps over the lazy dog. " * 400)
    small = [
        "--layers", "1", "--width", "16", "--heads", "2", "--context", "16", "--batch", "8", "--steps", "6",
    ]  # fmt: skip
    found = []
    for device in ("cpu", "cuda"):
        program = str(TESTS.parent / "examples" / "train_gpt.py")
        told = ddprun(
            program, "--data", str(book), "--run", device, "--device", device, *small, folder=tmp_path
        )
        found.append(re.findall(r"validation loss ([\d.]+) nats per byte, .* replicas bit-identical", told))
    assert len(found[0]) == 1 and float(found[1][0]) == pytest.approx(float(found[0][0]), rel=1e-4)
