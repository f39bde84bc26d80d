"""Starts the jobs of a benchmark, one at a time and in turns, and reads what they say."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ddpgrad.core.errors import LaunchError

from .training import MARK

_TAIL = 25
_T = TypeVar("_T")


@dataclass(frozen=True)
class Job:
    """So many ranks of `module`, in this package, with `arguments`. stack: who starts them: ddprun with `options`, or torchrun."""

    stack: str
    ranks: int
    module: str
    arguments: tuple[str, ...]
    options: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        module = f"{__package__}.{self.module}"
        if self.stack == "torch":
            torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(self.ranks)]
            return [sys.executable, "-m", *torchrun, "-m", module, *self.arguments]
        ddprun = ["ddpgrad.launcher", *self.options, "-n", str(self.ranks)]
        return [sys.executable, "-m", *ddprun, "-m", module, *self.arguments]


def run(job: Job) -> dict[str, Any]:
    """What rank 0 of the job says. LaunchError, with the end of its output, if it fails."""
    done = subprocess.run(job.command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    told = [line.partition(MARK)[2] for line in done.stdout.splitlines() if MARK in line]
    if done.returncode or len(told) != 1:
        tail = "\n".join(f"  {line}" for line in [*done.stderr.splitlines()][-_TAIL:])
        raise LaunchError(
            f"{job.stack} with {job.ranks} rank{'s' * (job.ranks > 1)} ended with code {done.returncode} and "
            f"{len(told) or 'no'} result{'s' * (len(told) > 1)}:\n{tail}\nIts command: {' '.join(job.command)}"
        )
    found = json.loads(told[0])
    if found["ranks"] != job.ranks:
        raise LaunchError(
            f"{job.stack}: {job.ranks} ranks were started, and {found['ranks']} found each other"
        )
    return found


def in_turns(jobs: Sequence[_T], rounds: int) -> Iterator[tuple[int, _T]]:
    """Each job in each round, in the other direction every other round: what the machine does else, hits all alike."""
    for turn in range(rounds):
        for job in jobs if turn % 2 == 0 else jobs[::-1]:
            yield turn, job


def check_torch() -> None:
    """Raise LaunchError if PyTorch is not there to be compared with."""
    if importlib.util.find_spec("torch") is None:
        raise LaunchError("--vs torch: PyTorch is not installed here: pip install torch")
