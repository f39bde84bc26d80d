"""ddprun as mpiexec, srun, torchrun or a shell has started it, several times: it runs the script as one rank of their job."""

from __future__ import annotations

import argparse
import os
import runpy
import shlex
import sys
from collections.abc import Sequence

from ddpgrad.core import environment
from ddpgrad.core.errors import LaunchError

from ..job.plan import Plan
from . import options

# The options that have a meaning for one process; the others tell a launcher what to start and how to watch it.
_OF_A_RANK = ("as_torch", "module", "threads", "timeout", "trace", "verify")


def wanted(chosen: argparse.Namespace, rest: Sequence[str]) -> bool:
    """Whether this ddprun is one of several that mpiexec, srun or torchrun has started, and is to run the script itself.

    It is not where `--nnodes` asks for a ddprun on each host, nor where it is told what to start and only RANK and
    WORLD_SIZE, which a shell may have from elsewhere, speak of others. Raises LaunchError for options by which each of
    those that a launcher started would start a job of its own.
    """
    others = [option for name, option in options.given(chosen).items() if name not in _OF_A_RANK]
    started = environment.started_together(by_hand=not others)
    if started is None or chosen.nnodes.partition(":")[0] != "1":
        return False
    variable, count = started
    if not others:
        target, *arguments = rest
        same = {"module": chosen.module, "timeout": chosen.timeout, "threads": chosen.threads}
        Plan(count, count, target, tuple(arguments), **same).check()
        return True
    script = shlex.join(["-m", *rest] if chosen.module else rest)
    starter, count_option, by_mpi = "mpirun", "-n", " --mpi"
    if variable == "WORLD_SIZE":
        starter, count_option, by_mpi = "torchrun", "--no-python --nproc-per-node", ""
    elif variable.startswith("SLURM"):
        starter, by_mpi = "srun", ""
    torch, python = (" --as-torch", "python -m ddpgrad.run --as-torch") if chosen.as_torch else ("", "python")
    raise LaunchError(
        f"{starter} has started {count} of this ddprun ({variable}={count}), and with {others[0]} each would start a job "
        f"of its own. Start the ranks once, either by `ddprun{torch} -n {count}{by_mpi} {script}` alone, or by "
        f"`{starter} {count_option} {count} {python} {script}`. (With --nnodes N there may be one ddprun on each of N hosts.)"
    )


def run(chosen: argparse.Namespace, rest: Sequence[str]) -> None:
    """Run the script, or the module, as the rank that its surroundings have made of this process."""
    variables = {
        "DDPGRAD_AS_TORCH": "1" if chosen.as_torch else None,
        "DDPGRAD_TIMEOUT": None if chosen.timeout is None else f"{chosen.timeout:g}",
        "DDPGRAD_VERIFY": str(chosen.verify) if chosen.verify else None,
        "DDPGRAD_TRACE": None if chosen.trace is None else str(chosen.trace.absolute()),
        **dict.fromkeys(environment.THREADS, None if chosen.threads is None else str(chosen.threads)),
    }
    environment.export(**{name: value for name, value in variables.items() if value is not None})
    target, *arguments = rest
    by_themselves = environment.launched() is None  # ranks of torchrun, or of a shell, meet so
    if by_themselves:  # before `install`, which puts a folder before the script's
        sys.argv = [target, *arguments]
        sys.path[0] = os.getcwd() if chosen.module else os.path.dirname(os.path.abspath(target))
    if chosen.as_torch:
        from .. import as_torch

        as_torch.install()
    from ddpgrad.distributed.ranks import host

    if by_themselves:
        (runpy.run_module if chosen.module else runpy.run_path)(target, run_name="__main__")
        return
    (host.run_module if chosen.module else host.run_script)(target, arguments, environment.launch())
