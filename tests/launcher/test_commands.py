"""The sub-commands, which describe checkpoints and this machine."""

import itertools
import mmap
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import ddpgrad
from ddpgrad import nn
from ddpgrad.launcher import Checkpointer
from ddpgrad.launcher.cli import doctor, fabric
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


@pytest.mark.parametrize("first", ["pt", "ddpgrad"])
def test_convert_takes_any_form_to_any_other(folder, tmp_path, first):
    weight = Checkpointer(folder).read("model")["weight"].tolist()
    files = [tmp_path / f"a.{first}", tmp_path / "b.safetensors", tmp_path / "c.ddpgrad", tmp_path / "d.pt"]
    assert main(["ckpt", "convert", str(folder), "model", str(files[0])]) == 0
    for source, target in itertools.pairwise(files):
        assert main(["ckpt", "convert", str(source), str(target)]) == 0
    assert ddpgrad.load(files[-1])["weight"].tolist() == weight
    assert safetensors.numpy.load_file(files[1])["weight"].tolist() == weight
    assert main(["ckpt", "convert", "--to", "pt", str(files[0]), str(tmp_path / "e.x")]) == 0
    assert (tmp_path / "e.x").read_bytes().startswith(b"PK")


def test_convert_refuses_by_name_what_a_form_cannot_hold(folder, tmp_path, capsys):
    whole, out = tmp_path / "whole.pt", tmp_path / "out"
    assert main(["ckpt", "convert", str(folder), str(whole)]) == 0
    assert ddpgrad.load(whole)["notes"] == ["x", 5]
    assert main(["ckpt", "convert", str(whole), f"{out}.safetensors"]) == 2
    assert "notes.0 is a str" in capsys.readouterr().err
    ddpgrad.save({"a": [ddpgrad.ones(2), np.ones(2)]}, tmp_path / "x.safetensors")
    assert main(["ckpt", "convert", str(tmp_path / "x.safetensors"), f"{out}.pt"]) == 2
    assert "a.1 is a NumPy array of float64" in capsys.readouterr().err
    assert main(["ckpt", "convert", str(whole), "absent", f"{out}.pt"]) == 2
    assert "holds no 'absent'; it holds model, notes" in capsys.readouterr().err
    assert main(["ckpt", "convert", str(whole), f"{out}.zip"]) == 2
    assert "--to" in capsys.readouterr().err
    whole.write_bytes(whole.read_bytes()[:-5])
    assert main(["ckpt", "convert", str(whole), f"{out}.pt"]) == 5
    assert not list(tmp_path.glob("out*"))


def test_checkpoints_are_found_in_the_folder_of_a_run(tmp_path, capsys):
    for run in ("a", "b"):
        Checkpointer(tmp_path / run / "checkpoints").save(3, notes=[run])
    assert main(["ckpt", "ls", str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out.startswith("step_00000003")
    assert main(["ckpt", "show", str(tmp_path / "b")]) == 0
    assert "0: b" in capsys.readouterr().out.replace("'", "")
    Checkpointer(tmp_path / "b" / "more").save(4, notes=["b"])
    assert main(["ckpt", "show", str(tmp_path / "b")]) == 2
    assert "several runs" in capsys.readouterr().err


def test_doctor_looks_at_everything_and_two_ranks_work():
    command = [sys.executable, "-m", "ddpgrad.launcher", "doctor"]  # with nothing loaded before
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    subjects = [
        "versions", "cores", "BLAS", "/dev/shm", "left", "MPI", "MPI", "network", "GPUs", "NCCL", "all-reduce",
    ]  # fmt: skip
    found = [line.split()[1] for line in lines if line.split()[0] in ("ok", "warning", "FAILED")]
    assert found == subjects
    assert "threads" in next(line for line in lines if line.split()[1] == "BLAS")
    assert "CUDA-aware" in next(line for line in lines if line.split()[1] == "MPI")
    assert lines[-1].startswith("ok") and lines[-1].endswith("GB/s")


def test_doctor_removes_what_killed_jobs_have_left(monkeypatch, capsys):
    kept, left = (Path(f"/dev/shm/ddpgrad-test{os.getpid()}-{name}") for name in ("kept", "left"))
    monkeypatch.setattr(doctor, "_LOOKS", ())
    monkeypatch.setattr(doctor, "_SEGMENTS", (f"ddpgrad-test{os.getpid()}-*",))
    try:
        for path in kept, left:
            path.write_bytes(bytes(4096))
            os.utime(path, (0, 0))
        with open(kept, "r+b") as file, mmap.mmap(file.fileno(), 0):
            assert left in doctor.abandoned() and kept not in doctor.abandoned()
            assert main(["doctor", "--clean"]) == 0
        assert not left.exists() and kept.exists()
        assert f"removed {left}" in capsys.readouterr().out
    finally:
        kept.unlink()


def device(folder: Path, name: str, driver: str, **port: str) -> None:
    """A network device as the kernel shows it."""
    (folder / name / "ports" / "1").mkdir(parents=True)
    (folder / "drivers" / driver).mkdir(parents=True, exist_ok=True)
    (folder / name / "device").mkdir()
    (folder / name / "device" / "driver").symlink_to(folder / "drivers" / driver)
    for key, value in port.items():
        (folder / name / "ports" / "1" / key).write_text(f"{value}\n")


def test_doctor_sees_networks_and_settings_that_leave_them_out(tmp_path, monkeypatch):
    limit = [resource.RLIM_INFINITY]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit[0], limit[0]))
    assert fabric.network(tmp_path / "none") == ("no InfiniBand, RoCE or EFA device: TCP between hosts", "")
    assert fabric.settings({"HOME": "/"}, tmp_path / "none") == (
        "none: the MPI library chooses the network",
        "",
    )
    devices, nodes = tmp_path / "infiniband", tmp_path / "nodes"
    nodes.mkdir()
    link = {"rate": "200 Gb/sec (4X HDR)", "state": "4: ACTIVE"}
    device(devices, "mlx5_0", "mlx5_core", link_layer="InfiniBand", **link)
    device(devices, "rocep1", "mlx5_core", link_layer="Ethernet", rate="25 Gb/sec", state="1: DOWN")
    device(devices, "rdmap0", "efa", link_layer="Unspecified", **link)
    said, advice = fabric.network(devices, nodes)
    assert said.split(", ") == [
        "mlx5_0 InfiniBand 200 Gb/sec (4X HDR) ACTIVE", "rdmap0 EFA 200 Gb/sec (4X HDR) ACTIVE",
        "rocep1 RoCE 25 Gb/sec DOWN",
    ]  # fmt: skip
    assert advice == ""
    assert "--device" in fabric.network(devices, tmp_path / "gone")[1]
    limit[0] = 65536
    said, advice = fabric.network(devices, nodes)
    assert said.endswith("memory lock limit 64 KiB") and "ulimit -l unlimited" in advice
    for variables, says in (
        ({"UCX_TLS": "tcp,self"}, "leaves InfiniBand and RoCE out"),
        ({"UCX_TLS": "rc_x,self"}, ""),
        ({"UCX_TLS": "^tcp"}, ""),
        ({"FI_PROVIDER": "tcp"}, "leaves EFA out"),
        ({"MPI4PY_LIBMPI": "/nowhere/libmpi.so"}, "does not exist: /nowhere/libmpi.so"),
    ):
        said, advice = fabric.settings(variables, devices)
        assert said == ", ".join(f"{name}={value}" for name, value in variables.items())
        assert says in advice and bool(says) == bool(advice)


def test_doctor_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_LOOKS", (lambda: doctor.Finding("ranks", "no", "do this", fatal=True),))
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].strip() == "do this"


def test_doctor_of_gpus_says_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(ddpgrad.cuda, "why_not", lambda: "CUDA is not available: no GPU; look at nvidia-smi")
    assert main(["doctor", "--gpu"]) == 2
    told = "ddprun: error: doctor --gpu: CUDA is not available: no GPU; look at nvidia-smi\n"
    assert capsys.readouterr().err == told
