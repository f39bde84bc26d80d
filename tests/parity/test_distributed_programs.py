"""Programs of two ranks, as PyTorch's users write them, under each way of starting ranks: PyTorch's losses."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torchruns import pytorchs_torchrun, torchrun

PROGRAMS = Path(__file__).parent / "programs"
RUN = [sys.executable, "-m", "ddpgrad.run", "--as-torch"]
STARTS = {
    "ddprun": lambda: [*RUN, "-n", "2"],
    "ddprun, one process": lambda: [*RUN, "-n", "2", "--procs", "1"],
    "torchrun": lambda: [*torchrun(2), "--no-python", *RUN],
    "mp.spawn": lambda: [sys.executable],
}


def losses(command: list[Any], found: Path, *options: str, **variables: str) -> dict[str, list[float]]:
    """What is in `found` when the programs have run that `command` starts."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run([*command, found, *options], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(found.read_text())


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    found = losses([*pytorchs_torchrun(2), PROGRAMS / "main.py"], tmp_path_factory.mktemp("torch") / "found")
    assert len(found) == 22
    return found


@pytest.mark.parametrize("start", STARTS)
def test_the_losses_are_pytorchs(start: str, theirs: dict[str, list[float]], tmp_path: Path):
    options = ["--spawn"] if start == "mp.spawn" else []
    served = {"SERVED_BY_DDPGRAD": "1"} if start == "mp.spawn" else {}
    ours = losses([*STARTS[start](), PROGRAMS / "main.py"], tmp_path / "found", *options, **served)
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        assert ours[name] == pytest.approx(expected, rel=1e-5, abs=1e-6), name


def test_a_job_that_loses_a_rank_ends_with_the_losses_of_one_that_does_not(tmp_path: Path):
    # PyTorch's is undisturbed: restarted, Gloo may connect to the addresses of the attempt before, and fail.
    theirs = losses(
        [*pytorchs_torchrun(2), PROGRAMS / "elastic.py", tmp_path], tmp_path / "torch", "--undisturbed"
    )
    for name, start in (
        ("torchrun", [*torchrun(2), "--max-restarts", "1", "--no-python", *RUN]),
        ("ddprun", [*RUN, "-n", "2", "--max-restarts", "1"]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        ours = losses([*start, PROGRAMS / "elastic.py", folder], folder / "found")
        assert ours["attempt"] == [1, 2]
        assert ours["losses"] == pytest.approx(theirs["losses"], rel=1e-5)
