"""8 ranks, 20 steps: one hash of losses and parameters for any number of processes, and after stop and resume.

By default three cases in which each model, both optimizers and three modes occur; `-m full` runs the 12 that
have every pair of them, and those with micro-batches ("parts"), `fully_shard` ("sharded", and "hybrid" on a
mesh of 4 x 2), which has the bits of DistributedDataParallel, as captured steps have, or DiLoCo.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from matrices import thinned

sys.path.append(str(Path(__file__).parents[1] / "cluster"))

import namespaces

JOB, LAYERS = (str(Path(__file__).parent / "jobs" / name) for name in ("proof.py", "layers_of_ranks.py"))
RANKS = 8
MODELS, OPTIMIZERS, MODES = ("mlp", "cnn", "gpt"), ("sgd", "adamw"), ("plain", "accumulate", "fp16", "clip")
PAIRS = tuple(
    f"{model}-{OPTIMIZERS[(i + j) % 2]}-{mode}"
    for (i, model), (j, mode) in product(enumerate(MODELS), enumerate(MODES))
)
OTHER_KINDS = (
    "cnn-sgd-parts", "gpt-adamw-parts", "gpt-adamw-sharded", "gpt-adamw-plain", "mlp-sgd-sharded", "mlp-sgd-plain",
    "mlp-adamw-diloco", "gpt-sgd-diloco8",
    "cnn-sgd-shardedparts", "gpt-adamw-hybrid", "gpt-adamw-hybridparts",
    "cnn-sgd-captured", "cnn-sgd-plain", "gpt-adamw-captured", "mlp-sgd-captured",
)  # fmt: skip
CORNER = PAIRS[::5]  # three models, two optimizers, three modes
SETS = [
    pytest.param(PAIRS, id="pairs", marks=pytest.mark.full),
    pytest.param(OTHER_KINDS, id="other kinds", marks=pytest.mark.full),
]


def ddprun(*words: str) -> str:
    """What the ranks of a job print."""
    command = [sys.executable, "-m", "ddpgrad.launcher", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def run(
    procs: int, cases: tuple[str, ...], folder: Path, *options: str, by: tuple[str, ...] = ()
) -> dict[str, str]:
    """Start the job and read what rank 0 printed."""
    return read(
        ddprun("-n", str(RANKS), "--procs", str(procs), *by, JOB, *cases, "--folder", str(folder), *options)
    )


def read(output: str) -> dict[str, str]:
    return json.loads(next(line[line.index("{") :] for line in output.splitlines() if "{" in line))


def replicated(case: str) -> str:
    """The case of eager steps under DistributedDataParallel that has the same bits."""
    model, optimizer, mode = case.split("-")
    mode = re.sub("sharded|hybrid|captured", "", mode)
    return f"{model}-{optimizer}-{mode or 'plain'}"


EAGER = tuple(case for case in OTHER_KINDS if "captured" not in case)
LIKE_PLAIN = tuple(case for case in OTHER_KINDS if replicated(case) == "gpt-adamw-plain")


@cache
def one_process(cases: tuple[str, ...], folder: Path) -> dict[str, str]:
    result = run(1, cases, folder)
    assert set(result) == set(cases)
    plain = {case: result[replicated(case)] for case in cases}
    assert result == plain, "fully_shard or a captured step has other bits"
    assert len(set(result.values())) == len(set(map(replicated, cases))), (
        "two cases that should differ do not"
    )
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proof")


@pytest.mark.parametrize(
    ("procs", "cases"),
    [
        pytest.param(2, CORNER, id="2-corner"),
        # Of 4 and 2 processes the test below tells.
        *(pytest.param(8, *c.values, marks=c.marks, id=f"8-{c.id}") for c in SETS),
    ],
)
def test_number_of_processes(procs: int, cases: tuple[str, ...], folder: Path, tmp_path: Path):
    assert run(procs, cases, tmp_path) == one_process(cases, folder)


@pytest.mark.parametrize("cases", SETS)
def test_stopped_and_resumed_on_other_processes(cases: tuple[str, ...], folder: Path, tmp_path: Path):
    run(4, cases, tmp_path, "--stop", "13")
    assert run(2, cases, tmp_path, "--resume") == one_process(cases, folder)


@pytest.mark.parametrize("procs", thinned([2, 4], 2))
def test_mpi_carries_the_gradients(
    procs: int, folder: Path, tmp_path: Path, mpiexec: str, monkeypatch: pytest.MonkeyPatch
):
    """MPI spins while it waits: where there are two cores, four processes take three times as long as two."""
    monkeypatch.setenv("DDPGRAD_TRANSPORT", "mpi")
    assert run(procs, CORNER, tmp_path, by=("--mpi",)) == one_process(CORNER, folder)


@pytest.mark.full
def test_sync_batchnorm_divided_state_and_uneven_batches():
    found = set()
    for procs in ("1", "2", "4"):
        found.update(re.findall("model ([0-9a-f]{64})", ddprun("-n", "4", "--procs", procs, LAYERS)))
    assert len(found) == 1


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[namespaces.Box]:
    if reason := namespaces.why_not():
        pytest.skip(reason)
    with namespaces.hosts(2, timeout=600) as run:
        yield run


@pytest.mark.full
@pytest.mark.netns
@pytest.mark.parametrize(
    ("transport", "cases"),
    [
        pytest.param("hierarchical", CORNER, id="hierarchical-corner"),
        pytest.param("hierarchical", EAGER, id="hierarchical-other kinds"),
        pytest.param("mpi", CORNER, id="by-mpi-corner"),
        pytest.param("mpi", LIKE_PLAIN, id="by-mpi-other kinds"),
    ],
)
def test_two_hosts(
    cases: tuple[str, ...], transport: str, two_hosts: namespaces.Box, folder: Path, tmp_path: Path
):
    program = [
        "env",
        f"DDPGRAD_TRANSPORT={transport}",
        sys.executable,
        JOB,
        *cases,
        "--folder",
        str(tmp_path),
    ]
    done = two_hosts(RANKS // 2, program)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert read(done.stdout) == one_process(cases, folder)
