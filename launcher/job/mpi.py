"""Starts a job through the mpiexec of MPICH or Open MPI."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ddpgrad.core.errors import LaunchError

from . import typed_input
from .hosts import Host, deal, spelt
from .listener import address_towards
from .plan import Plan
from .spawn import Child, popen_in_group

if TYPE_CHECKING:
    from .nodes import Nodes

_EXPORTED = ("DDPGRAD_", "DDPRUN_", "MASTER_", "WORLD_SIZE", "PYTHON", "NUMBA_")

# Hydra prints these lines instead of starting its proxies: https://github.com/pmodels/mpich, launcher "manual".
_PROXY = "HYDRA_LAUNCH: "
_LAST_LINE = b"HYDRA_LAUNCH_END\n"

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
    """The kind of `mpiexec`: 'mpich', also for others with its Hydra, such as Intel MPI, or 'openmpi'."""
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


def start(plan: Plan, report: str) -> Child:
    """Start mpiexec, whose processes will connect to `report`."""
    command, environment = _command(plan, plan.command(report, agent=True))
    popen = popen_in_group(
        command,
        environment,
        stdin=typed_input.for_rank_0(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Asked politely, both flavours end their processes; killed, Open MPI's leaves them behind.
        at_launcher_death=signal.SIGTERM,
    )
    if plan.nodes is not None:
        _distribute(popen, plan.nodes, [host.name for host, _ in deal(plan.hosts, plan.procs)])
    return Child(popen, range(plan.world_size), prefix="")


def try_host(plan: Plan, host: Host, said: int) -> subprocess.Popen[bytes]:
    """Start mpiexec with a program that imports what a process of the job does, on `host` alone. said: a file for its output."""
    alone = replace(plan, world_size=1, procs=1, hosts=(host,))
    words = [sys.executable, "-P", "-c", "import ddpgrad.launcher.job.run_script"]
    return popen_in_group(*_command(alone, words), stdout=said, stderr=said, at_launcher_death=signal.SIGTERM)


def _command(plan: Plan, words: list[str]) -> tuple[list[str], dict[str, str]]:
    """mpiexec's command line, and its environment, for `words` in each process of `plan`."""
    mpiexec = find(plan.mpiexec)
    command, environment = [mpiexec], plan.environment(None)
    openmpi = flavour(mpiexec) == "openmpi"
    if plan.nodes is not None:
        if openmpi:
            raise LaunchError(
                f"--nnodes {plan.nodes.count} needs MPICH's mpiexec, and {mpiexec} is Open MPI's: start ddprun once, "
                "with --hosts A:4,B:4, which reaches the others by ssh"
            )
        # The nodes run the commands that it would run by ssh.
        command += ["-launcher", "manual", "-localhost", plan.nodes.address]
    elif plan.hosts and not openmpi:
        command += _localhost(plan.hosts[0].name)
    if openmpi:
        # Containers run as root. A rank more than there are cores is no mistake when ranks wait politely.
        # Bound to one core, a process and its communication thread would starve each other.
        environment["OMPI_ALLOW_RUN_AS_ROOT"] = environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        command += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    if openmpi and plan.hosts:
        return [*command, *_on_each_host(plan, words, environment)], environment
    where = ["-hosts", spelt(plan.hosts)] if plan.hosts else []
    return [*command, *where, "-n", str(plan.procs), *words], environment


def _on_each_host(plan: Plan, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The arguments for Open MPI that run `words` on each host.

    Given all hosts at once, Open MPI may not begin with the first, and the launcher would mistake one lost host for another.
    """
    # Other hosts get only the variables that are named.
    names = [name for name in environment if name.startswith(_EXPORTED) or name.endswith("_NUM_THREADS")]
    exported = [word for name in names for word in ("-x", name)]
    contexts = [
        ["--host", f"{host.name}:{len(procs)}", *exported, "-n", str(len(procs)), *words]
        for host, procs in deal(plan.hosts, plan.procs)
    ]
    return [word for context in contexts for word in (":", *context)][1:]


def _localhost(host: str) -> list[str]:
    """The arguments for Hydra with the address of this host, whose name `host` may not know."""
    here = address_towards(host)
    return ["-localhost", here] if here and not here.startswith("127.") else []


def _distribute(mpiexec: subprocess.Popen[bytes], nodes: Nodes, names: Sequence[str]) -> None:
    """Give every node its proxy's command line, of which `mpiexec` prints one for each."""
    assert mpiexec.stdout is not None
    said = b""
    while not said.endswith(_LAST_LINE):
        byte = os.read(mpiexec.stdout.fileno(), 1)
        if not byte:
            return  # it has failed, and prints the reason on its other stream
        said += byte
    commands = [line.removeprefix(_PROXY) for line in said.decode().splitlines() if line.startswith(_PROXY)]
    for name, command in zip(names, commands, strict=True):
        nodes.run(name, shlex.split(command))
