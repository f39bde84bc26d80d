"""Files of a job that its processes cannot remove when they are killed.

Shared memory and temporary folders carry the job's token in their names, so that whoever is
left can remove them. Imports nothing of ddpgrad; see agent.py.
"""

from __future__ import annotations

import multiprocessing
import re
import shutil
import tempfile
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")
_SEGMENT = re.compile(r"/dev/shm/(?:mpich_shm_|sm_segment\.)[\w.-]+")


def prepare(job: str, proc: int) -> None:
    """Let `multiprocessing` (of loader workers, say) keep its sockets where `remove` finds them."""
    folder = Path(tempfile.gettempdir()) / f"ddpgrad-{job}-{proc}"
    folder.mkdir(mode=0o700)
    # What `multiprocessing.util.get_temp_dir` would make itself, under a name that nobody knows.
    multiprocessing.current_process()._config["tempdir"] = str(folder)  # pyright: ignore[reportAttributeAccessIssue]


def segments_of(pid: int) -> set[str]:
    """The files in shared memory that the MPI library has made, which it forgets when it is killed or aborts.

    Raises OSError if the process has ended.
    """
    return set(_SEGMENT.findall(Path(f"/proc/{pid}/maps").read_text(errors="replace")))


def remove(job: str) -> None:
    """Remove what processes of `job` have left on this host."""
    for path in _SHARED_MEMORY.glob(f"ddpgrad-{job}*"):
        path.unlink(missing_ok=True)
    for path in Path(tempfile.gettempdir()).glob(f"ddpgrad-{job}-*"):
        shutil.rmtree(path, ignore_errors=True)
