"""Programs for a GPU, on the stand-in: `ddprun doctor --gpu`, what a training step asks, and parts of the session."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fakecuda.coverage
import pytest

import ddpgrad as torch
from ddpgrad.launcher.cli import gpu, gpu_kernels
from ddpgrad.launcher.cli.ddprun import main

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "examples" / "benchmarks"))

import gpu_counts  # noqa: E402

pytestmark = pytest.mark.fakegpu

# By job and part: launches, products and copies to the GPU, at most. This may only shrink.
MOST = {
    "MLP": {"forward": (13, 5, 0), "backward": (21, 9, 0), "clip": (3, 0, 1), "optimizer": (1, 0, 1)},
    "CNN": {"forward": (101, 20, 4), "backward": (153, 31, 0), "clip": (3, 0, 1), "optimizer": (1, 0, 1)},
    "GPT, 2 layers": {
        "forward": (33, 13, 0), "backward": (50, 28, 0), "clip": (3, 0, 1), "optimizer": (3, 0, 1),
    },
    "GPT, 2 layers in bfloat16": {
        "forward": (36, 9, 0), "backward": (58, 18, 0), "clip": (3, 0, 1), "optimizer": (3, 0, 1),
    },
    "GPT, 12 layers": {
        "forward": (153, 73, 0), "backward": (230, 158, 0), "clip": (3, 0, 1), "optimizer": (3, 0, 1),
    },
}  # fmt: skip


def test_doctor_runs_every_kernel_and_all_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAKE_CUDA_LOG", str(tmp_path / "log"))
    doctor = [sys.executable, "-m", "ddpgrad.launcher", "doctor", "--gpu"]
    done = subprocess.run(doctor, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 wrong; " in done.stdout.splitlines()[-1]
    found = {row.split(maxsplit=1)[1].partition("  ")[0] for row in done.stdout.splitlines()[:-1]}
    assert {"driver", "NCCL", "peer access", "attention", "Adam lr=0.1", "all of these"} <= found
    assert {"cuda:1 copy", "all-reduce, NCCL", "all-reduce, host memory"} <= found
    line, missing = fakecuda.coverage.report(tmp_path / "log")
    assert not missing, line


def doubled(place: str) -> gpu_kernels.Case:
    """A value, a gradient or a dtype that only the GPU gets wrong."""

    def call(device: str, dtype: Any, x: Any) -> Any:
        if device == "cpu":
            return x * 1
        return {"value": x * 1.01, "gradient": x + (x - x.detach()), "dtype": x.double() * 1}[place]

    return gpu_kernels.Case(place, ((3,),), call)


@pytest.mark.parametrize(
    ("place", "told"),
    [("value", "output 0 is off by"), ("gradient", "output 1 is off by"), ("dtype", "torch.float64 where")],
)
def test_doctor_says_what_is_wrong(
    place: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(gpu_kernels, "cases", lambda: iter([doubled(place)]))
    monkeypatch.setattr(gpu_kernels, "DTYPES", (torch.float32,))
    for name in ("_rates", "_exchanges"):
        monkeypatch.setattr(gpu, name, lambda *_: ())
    assert main(["doctor", "--gpu"]) == 1
    assert f"wrong  {place:<34} cuda:0: torch.float32: {told}" in capsys.readouterr().out


@pytest.mark.parametrize("name", MOST)
def test_a_step_launches_no_more_than_it_did_and_waits_for_nothing(name: str):
    job = name.removesuffix(" in bfloat16")
    autocast = None if job == name else torch.bfloat16
    counts = gpu_counts.counted(gpu_counts.JOBS[job](), autocast)
    for part, most in MOST[name].items():
        row = counts[part]
        found = [row[column] for column in ("launches", "products", "to_device")]
        assert all(n is not None and n <= limit for n, limit in zip(found, most, strict=True)), (part, found)
        assert row["synchronisations"] == row["to_host"] == 0, (part, row)
    assert (counts["step"]["launches"] or 0) > 30
    captured = gpu_counts.captured(gpu_counts.JOBS[job](), autocast)
    assert captured["graph_launches"] == 1 and captured["launches"] == 0, captured
    assert captured["synchronisations"] == captured["to_host"] == 0 and captured["to_device"] == 1, captured


@pytest.mark.parametrize("part", "345")
def test_the_session_for_a_gpu_runs_to_its_end(part: str, tmp_path: Path):
    """The parts whose programs nothing else runs."""
    found = {
        "SMALL": "1",
        "OUT": str(tmp_path),
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT / "tests" / "fake_cuda"),
    }
    command = ["bash", str(ROOT / "tests" / "gpu" / "session.sh"), part]
    done = subprocess.run(command, env=os.environ | found, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"== part {part}: all of it holds" in (tmp_path / f"part{part}.log").read_text()


def test_bench_measures_gpus_and_what_joins_them(tmp_path: Path):
    """Not the host's memory: that is what joins ranks who say nothing of GPUs."""
    bench = [sys.executable, "-m", "ddpgrad.launcher", "bench"]
    words = ["--device", "cuda", "--rounds", "1", "-o"]
    sums = [*bench, "collectives", *words, "sums", "--ranks", "2", "--ops", "all_reduce", "--kib", "4"]
    done = subprocess.run(sums, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "2 ranks of 1 host, cuda, nccl" in done.stdout, done.stderr
    training = [*bench, *words, "training", "--model", "tiny_mlp", "--ranks", "1,2", "--seconds", "0.1"]
    done = subprocess.run(training, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "weak scaling, cuda" in done.stdout, done.stderr


def test_a_step_of_the_session_that_fails_or_has_no_time_stops_no_other(tmp_path: Path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$*" in *captured*) kill -9 $$ ;; *doctor*) exit 3 ;; esac\n')
    python.chmod(0o755)

    def summary(limit: str) -> dict[str, str]:
        """What is said of each program of the repository."""
        found = {"OUT": str(tmp_path / limit), "PYTHON": str(python), "LIMIT": limit}
        command = ["bash", str(ROOT / "tests" / "gpu" / "session.sh"), "first"]
        done = subprocess.run(command, env=os.environ | found, capture_output=True, text=True, timeout=100)
        assert done.returncode == 1 and "== part first: FAILED" in done.stdout, done.stdout + done.stderr
        lines = (tmp_path / limit / "summary.txt").read_text().splitlines()
        return {
            name: line
            for line in lines
            for name in ("captured", "doctor", "ops_beside", "tests/ops")
            if name in line
        }

    told = summary("500")
    assert "FAILED" in told["captured"] and "or killed" in told["captured"]
    assert "FAILED" in told["doctor"] and "exit code 3" in told["doctor"]
    assert " ok " in told["ops_beside"] and " ok " in told["tests/ops"]
    assert all("not begun, the 0 s" in line for line in summary("0").values())


def test_the_mark_gpu_is_enough_where_there_is_a_gpu():
    options = ["-m", "pytest", "-m", "gpu", "--collect-only", "-q", "-n", "0", "tests/optim/test_on_gpu.py"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "fake_cuda")])
    env = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *options], env=env, cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
