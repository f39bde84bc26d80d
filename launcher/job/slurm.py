"""Starts a job in a Slurm allocation, through srun."""

from __future__ import annotations

import shutil
import signal
import subprocess

from ddpgrad.core import environment
from ddpgrad.core.errors import LaunchError

from . import mpi
from .plan import Plan
from .spawn import Child, popen_in_group

_TYPES = {"mpich": "pmi2", "openmpi": "pmix"}


def start(plan: Plan, report: str) -> Child:
    """Start srun, whose tasks will connect to `report`."""
    srun = shutil.which("srun")
    if srun is None:
        raise LaunchError(
            "this is a Slurm allocation, but srun is not on PATH; --standalone uses this host alone, and --mpi mpiexec"
        )
    command = [srun, f"--ntasks={plan.procs}", "--cpu-bind=none", "--kill-on-bad-exit=0", "--input=none"]
    command.append("--distribution=block")  # as ranks are counted on each host
    if plan.nnodes > 1:
        command += [f"--nodes={plan.nnodes}", f"--ntasks-per-node={plan.procs // plan.nnodes}"]
    wanted = _mpi_type(srun, plan.mpiexec)
    if wanted is not None:
        command.append(f"--mpi={wanted}")
    popen = popen_in_group(
        [*command, *plan.command(report, agent=True)],
        plan.environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        at_launcher_death=signal.SIGTERM,
    )
    return Child(popen, range(plan.world_size), prefix="")


def _mpi_type(srun: str, mpiexec: str | None) -> str | None:
    """How srun is to talk to the installed MPI library; None where the user has said it."""
    allocation = environment.slurm_allocation()
    if allocation is not None and allocation.mpi_type is not None:
        return None
    # With the wrong one every task would be a world of its own.
    wanted = _TYPES[mpi.flavour(mpi.find(mpiexec))]
    said = subprocess.run(
        [srun, "--mpi=list"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
    )
    offered = (said.stdout + said.stderr).split()
    if wanted not in offered and not any(word.startswith(wanted) for word in offered):
        raise LaunchError(
            f"the installed MPI library needs srun --mpi={wanted}, which this Slurm does not offer (srun --mpi=list). "
            "Set SLURM_MPI_TYPE to what fits, or let mpiexec start the ranks with --mpi"
        )
    return wanted
