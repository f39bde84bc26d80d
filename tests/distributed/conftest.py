"""Real processes for the transport tests, started as a launcher would start them."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from patience import patience
from started_by_hand import Program

from ddpgrad import environment

HERE = Path(__file__).parent
# The contract is a program that processes run, and a module that tests of this folder import.
sys.path.append(str(HERE))

# What runs in each process: every rank that it hosts executes the program.
_CHILD = """
import sys
from ddpgrad import environment
from ddpgrad.distributed.ranks import host
host.run_script(sys.argv[1], sys.argv[2:], environment.launch())
"""


@dataclass
class Ended:
    """How one process ended."""

    code: int
    output: str


class Job:
    """The processes of one job; `ended` waits for all of them."""

    def __init__(self, world_size: int, procs: int, program: str, *arguments: str, **variables: str) -> None:
        self.token = secrets.token_hex(6)
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-W", "error", "-c", _CHILD, str(HERE / program), *arguments],
                env=environment.child_environment(
                    WORLD_SIZE=str(world_size),
                    DDPGRAD_PROCS=str(procs),
                    DDPGRAD_PROC=str(proc),
                    DDPGRAD_JOB=self.token,
                    OMP_NUM_THREADS="1",
                    OPENBLAS_NUM_THREADS="1",
                    **variables,
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for proc in range(procs)
        ]

    def ended(self) -> list[Ended]:
        results = []
        for process in self.processes:
            output, _ = process.communicate(timeout=60 * patience())
            results.append(Ended(process.returncode, output))
        left = [name for name in os.listdir("/dev/shm") if self.token in name]
        assert left == [], "segments stayed behind"
        return results

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def start_job():
    """`start_job(world_size, procs, program, *arguments, **environment)` gives a `Job`."""
    jobs: list[Job] = []

    def start(*args, **kwargs) -> Job:
        jobs.append(Job(*args, **kwargs))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()


@pytest.fixture
def run_program(tmp_path: Path):
    """`run_program(text, ranks, *arguments, stdin)` runs it as the ranks of one new process."""

    def run(text: str, ranks: int, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        path = tmp_path / "program.py"
        path.write_text(text)
        return subprocess.run(
            [sys.executable, "-c", _CHILD, str(path), *arguments],
            env=environment.child_environment(WORLD_SIZE=str(ranks), DDPGRAD_PROCS="1", DDPGRAD_PROC="0"),
            input=stdin, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def mpi_job():
    """`mpi_job(world_size, procs, program, *arguments)` runs it under mpiexec; gives an `Ended`."""
    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("no mpiexec: install an MPI library, for example ddpgrad[mpich]")
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
    flags = ["--oversubscribe", "--bind-to", "none"] if "Open MPI" in version or "open-mpi" in version else []

    def run(world_size: int, procs: int, program: str, *arguments: str, **variables: str):
        hosted = {} if world_size == procs else {"DDPGRAD_PROCS": str(procs), "WORLD_SIZE": str(world_size)}
        child = ["-c", _CHILD] if hosted else []
        done = subprocess.run(
            [mpiexec, *flags, "-n", str(procs), sys.executable, *child, str(HERE / program), *arguments],
            env=environment.child_environment(
                OMP_NUM_THREADS="1",
                OPENBLAS_NUM_THREADS="1",
                OMPI_ALLOW_RUN_AS_ROOT="1",
                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                **hosted,
                **variables,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60 * patience(),
            check=False,
        )
        return Ended(done.returncode, done.stdout)

    return run


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """A program whose processes nobody but the test starts."""
    program = Program(tmp_path / "program.py")
    yield program
    program.close()
