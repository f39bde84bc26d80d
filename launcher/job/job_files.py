"""Files of a job that its processes cannot remove when they are killed.

The names of shared memory and of temporary folders contain the job's token, so that the launcher, an agent
or the cleanup process can remove them. Imports the standard library only; see agent.py.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")


def prepare(job: str, proc: int) -> None:
    """Let `multiprocessing` (of loader workers, say) keep its sockets where `remove` finds them."""
    folder = Path(tempfile.gettempdir()) / f"ddpgrad-{job}-{proc}"
    folder.mkdir(mode=0o700)
    # `multiprocessing.util.get_temp_dir` would make a folder itself, under a name that nobody knows.
    multiprocessing.current_process()._config["tempdir"] = str(folder)  # pyright: ignore[reportAttributeAccessIssue]


def remove(job: str) -> None:
    """Remove the files that processes of `job` have left on this host."""
    for path in _SHARED_MEMORY.glob(f"ddpgrad-{job}*"):
        path.unlink(missing_ok=True)
    for path in Path(tempfile.gettempdir()).glob(f"ddpgrad-{job}-*"):
        shutil.rmtree(path, ignore_errors=True)
