"""`ddprun --slurm`: makes a batch file of the command line, submits it, and follows the job."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ddpgrad.core import environment
from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure import exit_codes

from ..job import batch
from ..job.plan import Plan
from . import options

_OTHERWISE = (
    "debug", "standalone", "mpi", "mpiexec", "hosts", "hostfile", "hosts_from", "node_rank", "rdzv_endpoint", "master_addr", "master_port"
)  # fmt: skip

# What the batch file gets from options of ddprun, or is found again by.
_OURS = {
    "nodes": "--nnodes", "ntasks": "-n", "ntasks-per-node": "-n", "cpus-per-task": "--threads", "array": "--array",
    "output": "--log-dir", "open-mode": "--log-dir", "requeue": "--requeue",
}  # fmt: skip


def run(plan: Plan, chosen: argparse.Namespace) -> int:
    """Submit `plan`, which ddprun's options in `chosen` describe, and follow it; returns its exit code."""
    folder = _folder(plan.log_dir)
    job = "slurm-%A_%a" if chosen.array else "slurm-%j"
    command = [
        sys.executable,
        "-P",
        "-m",
        "ddpgrad.launcher",
        *options.without(plan.command_line, options.SLURM),
    ]
    asked = _sbatch_options(plan, chosen, str(folder).replace("%", "%%") + f"/{job}.out")
    text = batch.script(asked, command, requeue=chosen.requeue)
    if chosen.dry_run:
        print(text, end="")
        return exit_codes.FINISHED
    folder.mkdir(parents=True, exist_ok=True)
    number = batch.submit(text)
    kept = folder / f"slurm-{number}.sbatch"
    kept.write_text(text, "utf-8")
    print(
        f"ddprun: submitted as job {number}; `scancel {number}` cancels it, {kept} is its batch file",
        file=sys.stderr,
    )
    output = folder / (job.replace("%A", number).replace("%j", number) + ".out")
    return batch.Follower(number, output).run()


def check(chosen: argparse.Namespace, rest: Sequence[str]) -> None:
    """Raise LaunchError for options that have no meaning for a job that waits in the queue. rest: the script, its arguments."""
    given = options.given(chosen)
    if others := [given[name] for name in _OTHERWISE if name in given]:
        raise LaunchError(
            f"--slurm lets Slurm choose the hosts and srun start the ranks; leave out {others[0]}"
        )
    if environment.slurm_allocation() is not None:
        raise LaunchError(
            "this is a Slurm allocation already, in which ddprun starts the ranks: leave out --slurm"
        )
    if chosen.nproc_per_node is not None and not chosen.nproc_per_node.isdecimal():
        raise LaunchError(
            f"-n {chosen.nproc_per_node}: the hosts are not known before Slurm has chosen them; give a number of ranks"
        )
    for text in chosen.sbatch:
        name = text.lstrip("-").partition("=")[0]
        if not name:
            raise LaunchError(f"--sbatch takes NAME=VALUE or NAME, as in account=physics; got {text!r}")
        if name in _OURS:
            raise LaunchError(f"--sbatch {text}: ddprun sets {name} itself, by {_OURS[name]}")
    if chosen.array:
        if not any(batch.SEED in argument for argument in rest):
            raise LaunchError(
                f"--array {chosen.array} would run the same job several times: give the script its number, as in "
                f"--seed {batch.SEED}"
            )
        for name, folder in (("--log-dir", chosen.log_dir), ("--trace", chosen.trace)):
            if folder is not None and batch.SEED not in str(folder):
                raise LaunchError(
                    f"{name} {folder}: the jobs of --array need a folder each, as in {folder}/{batch.SEED}"
                )


def _folder(log_dir: Path | None) -> Path:
    """Where the batch file and Slurm's output belong: the part of `log_dir` that all jobs of an array share."""
    folder = Path() if log_dir is None else log_dir
    while batch.SEED in str(folder):
        folder = folder.parent
    return folder.absolute()


def _sbatch_options(plan: Plan, chosen: argparse.Namespace, output: str) -> dict[str, str | None]:
    wanted = {
        "job-name": Path(plan.target).stem,
        "nodes": str(plan.nnodes),
        "ntasks-per-node": str(plan.procs // plan.nnodes),
        "cpus-per-task": None if plan.threads is None else str(plan.threads),
        "gpus-per-node": chosen.gpus_per_node,
        "time": chosen.time,
        "partition": chosen.partition,
        "array": chosen.array,
        "output": output,
    }
    asked: dict[str, str | None] = {name: value for name, value in wanted.items() if value is not None}
    if chosen.requeue:
        asked["requeue"] = None
    for text in chosen.sbatch:
        name, equals, value = text.lstrip("-").partition("=")
        asked[name] = value if equals else None
    return asked
