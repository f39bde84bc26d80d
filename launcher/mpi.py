"""Starts a job through the mpiexec of MPICH or Open MPI."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from ddpgrad.errors import LaunchError

from .plan import Plan
from .spawn import Process, popen_in_group

_TOLD = ("DDPGRAD_", "DDPRUN_", "MASTER_", "WORLD_SIZE", "PYTHON", "NUMBA_")

_INSTALL = 'install one with `pip install "ddpgrad[mpich]"` or load the site\'s MPI module'


def find(path: str | None = None) -> str:
    """The mpiexec to use: `path`, or the one beside this Python, or the first on PATH.

    The one beside Python comes first because it belongs to the MPI library that pip
    installed there, which mpi4py loads; another one's processes would not find each other.
    """
    if path is not None:
        found = shutil.which(path)
        if found is None:
            raise LaunchError(f"--mpiexec {path}: there is no such program")
        return found
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("mpiexec") or shutil.which("mpirun")
    if found is None:
        raise LaunchError(f"--mpi needs mpiexec, which is neither beside Python nor on PATH; {_INSTALL}")
    return found


def flavour(mpiexec: str) -> str:
    """'mpich' (and what is built on its Hydra, such as Intel MPI) or 'openmpi', as `mpiexec` itself says."""
    try:
        answer = subprocess.run(
            [mpiexec, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{mpiexec} --version failed: {error}; {_INSTALL}") from error
    said = answer.stdout + answer.stderr
    if "Open MPI" in said or "OpenRTE" in said:
        return "openmpi"
    if "HYDRA" in said or "Intel(R) MPI" in said:
        return "mpich"
    first = said.strip().partition("\n")[0]
    raise LaunchError(
        f"{mpiexec} is neither MPICH's nor Open MPI's (its --version says {first!r}). Start the script "
        f"with it directly, which needs no ddprun: {Path(mpiexec).name} -n RANKS python SCRIPT"
    )


def start(plan: Plan, report: str) -> Process:
    """Start mpiexec, whose processes will connect to `report`."""
    mpiexec = find(plan.mpiexec)
    command, environment = [mpiexec], plan.environment(None)
    openmpi = flavour(mpiexec) == "openmpi"
    if plan.hosts is not None:
        command += ["--host" if openmpi else "-hosts", plan.hosts]
    if plan.hostfile is not None:
        command += ["--hostfile" if openmpi else "-f", plan.hostfile]
    if openmpi:
        # Containers run as root. A rank more than there are cores is no mistake when ranks wait politely.
        # Bound to one core, a process and its communication thread would starve each other.
        environment["OMPI_ALLOW_RUN_AS_ROOT"] = environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        command += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
        if plan.hosts is not None or plan.hostfile is not None:
            # Other hosts get only the variables that are named.
            told = [name for name in environment if name.startswith(_TOLD) or name.endswith("_NUM_THREADS")]
            command += [word for name in told for word in ("-x", name)]
    command += ["-n", str(plan.procs), *plan.command(report)]
    popen = popen_in_group(
        command,
        environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Asked politely, both flavours end their processes; killed, Open MPI's leaves them behind.
        at_launcher_death=signal.SIGTERM,
    )
    return Process(popen, range(plan.world_size), prefix="")
