"""The sub-commands, which describe checkpoints and this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.numpy

import ddpgrad
from ddpgrad import nn
from ddpgrad.launcher import Checkpointer
from ddpgrad.launcher.cli import doctor
from ddpgrad.launcher.cli.ddprun import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    checkpoints = Checkpointer(tmp_path / "run", keep=None)
    for step in (3, 5):
        checkpoints.save(step, 0.25, model=nn.Linear(3, 2), notes=["x", step])
    return checkpoints.folder


def test_ls_and_show(folder, capsys):
    assert main(["ckpt", "ls", str(folder)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("step_00000003  1 rank  ") and second.endswith("metric 0.25")
    assert main(["ckpt", "show", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "step 5, 1 rank" in shown and "weight: float32[2, 3]" in shown and "1: 5" in shown


def test_verify_names_the_damaged_one(folder, capsys):
    assert main(["ckpt", "verify", str(folder)]) == 0
    (folder / "step_00000005" / "model.safetensors").write_bytes(b"")
    assert main(["ckpt", "verify", str(folder)]) == 5
    whole, damaged = capsys.readouterr().out.splitlines()[-2:]
    assert whole == "step_00000003  whole" and "model.safetensors is truncated" in damaged


def test_convert_writes_plain_safetensors(folder, tmp_path, capsys):
    output = tmp_path / "model.safetensors"
    assert main(["ckpt", "convert", str(folder), "model", str(output)]) == 0
    arrays = safetensors.numpy.load_file(output)
    model = nn.Linear(3, 2)
    model.load_state_dict({name: ddpgrad.from_numpy(array) for name, array in arrays.items()})
    assert arrays["weight"].tolist() == Checkpointer(folder).read("model")["weight"].tolist()
    assert main(["ckpt", "convert", str(folder), "model", str(output)]) == 2
    assert main(["ckpt", "convert", str(folder), "absent", str(tmp_path / "x")]) == 2
    assert main(["ckpt", "ls", str(tmp_path / "nowhere")]) == 2
    assert "holds no 'absent'; it holds model, notes" in capsys.readouterr().err


def test_doctor_looks_at_everything_and_two_ranks_work(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    subjects = ["versions", "cores", "BLAS", "/dev/shm", "MPI", "GPUs", "NCCL", "all-reduce"]
    found = [line.split()[1] for line in lines if line.split()[0] in ("ok", "warning", "FAILED")]
    assert found == subjects
    assert "CUDA-aware" in next(line for line in lines if line.split()[1] == "MPI")
    assert lines[-1].startswith("ok") and lines[-1].endswith("GB/s")


def test_doctor_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_LOOKS", (lambda: doctor.Finding("ranks", "no", "do this", fatal=True),))
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].strip() == "do this"
