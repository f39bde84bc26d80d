"""One 4-rank job gives one series of losses and one set of parameters, to the bit, however it is started."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

JOB = str(Path(__file__).parent / "jobs" / "same_bits.py")
RANKS = 4


def ddprun(*options: str) -> list[str]:
    return [sys.executable, "-m", "ddpgrad.launcher", "-n", str(RANKS), *options, JOB]


def mpirun() -> list[str]:
    mpiexec = shutil.which(
        "mpiexec", path=f"{Path(sys.executable).parent}:{__import__('os').environ['PATH']}"
    )
    if mpiexec is None:
        pytest.skip("no mpiexec: pip install 'ddpgrad[mpich]'")
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=60).stdout
    flags = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"] if "Open MPI" in version else []
    return [mpiexec, *flags, "-n", str(RANKS), sys.executable, JOB]


def run(command: list[str], *arguments: str) -> dict[str, Any]:
    """Start the job and read what rank 0 printed."""
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found = re.search(r"\{\"losses\".*\}", done.stdout)
    assert found, done.stdout[-2000:]
    return json.loads(found[0])


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the job gives with all ranks in one process."""
    result = run(ddprun("--procs", "1"), "--checkpoints", str(tmp_path_factory.mktemp("one")))
    assert len(result["losses"]) == 30
    assert len(set(result["hashes"])) == 1, "the replicas differ"
    return result


@pytest.mark.full
@pytest.mark.parametrize("procs", ["2", "4", "3"])
def test_number_of_processes(one_process: dict[str, Any], procs: str, tmp_path: Path):
    assert run(ddprun("--procs", procs), "--checkpoints", str(tmp_path)) == one_process


@pytest.mark.full
def test_mpirun(one_process: dict[str, Any], tmp_path: Path):
    assert run(mpirun(), "--checkpoints", str(tmp_path)) == one_process


def test_mpi_carries_the_gradients(
    one_process: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    command = mpirun()
    monkeypatch.setenv("DDPGRAD_TRANSPORT", "mpi")
    assert run(command, "--checkpoints", str(tmp_path)) == one_process


def test_stopped_and_resumed_on_other_processes(one_process: dict[str, Any], tmp_path: Path):
    run(ddprun("--procs", "4"), "--checkpoints", str(tmp_path), "--stop-after", "17")
    assert run(ddprun("--procs", "2"), "--checkpoints", str(tmp_path), "--resume") == one_process


@pytest.mark.full
def test_sync_batchnorm_divided_state_and_uneven_batches():
    job = str(Path(__file__).parent / "jobs" / "layers_of_ranks.py")
    found = set()
    for procs in ("1", "2", "4"):
        done = subprocess.run(
            [*ddprun("--procs", procs)[:-1], job], capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        found.update(re.findall("model ([0-9a-f]{64})", done.stdout))
    assert len(found) == 1
