"""A program's own folder for a run: `write_config` puts there how the run was started."""

from __future__ import annotations

import json
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

from ddpgrad.core import environment
from ddpgrad.distributed.ranks import host
from ddpgrad.distributed.ranks.world import HostedRank

from . import folder_lock
from .job import run_config
from .job.plan import label


def write_config(folder: str | Path, **settings: Any) -> None:
    """Write `folder`/config.json from rank 0: how the job was started, and the program's own `settings`.

    It has the command, ddprun's options, the world, the hosts and the versions of what computes; the other ranks
    write nothing. What JSON has no form for is written as text. Raises OSError where the folder cannot be written to, and
    CheckpointError where another job writes into it.
    """
    me = host.current()
    if me.rank == 0:
        said = environment.job_config()
        config = json.loads(said) if said is not None else _without_ddprun(me)
        Path(folder).mkdir(parents=True, exist_ok=True)
        lock = folder_lock.of(Path(folder))
        run_config.write(Path(folder), {**config, "settings": settings})
        del lock


def _without_ddprun(me: HostedRank) -> dict[str, Any]:
    launch = me.launch
    return {
        "command": shlex.join(sys.orig_argv),
        **run_config.place(),
        "script": sys.argv[0],
        "arguments": sys.argv[1:],
        "options": {},
        "world": run_config.world(me.world_size, launch.procs, "mpiexec or srun" if launch.mpi else "python"),
        # Where the others are is not known here.
        "hosts": {socket.gethostname(): label(launch.ranks)},
        "versions": run_config.versions(),
    }
