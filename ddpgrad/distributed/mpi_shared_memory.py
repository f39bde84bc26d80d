"""The files in shared memory that an MPI library leaves behind when its process is killed or aborts.

Imports the standard library only, as the launcher's agents (`launcher/job/agent.py`) must stay small.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

PREFIXES = ("mpich_shm_", "sm_segment.")
"""How the names of segments begin that MPICH and Open MPI make."""

_SEGMENT = re.compile(rf"/dev/shm/(?:{'|'.join(map(re.escape, PREFIXES))})[\w.-]+")


def segments_of(pid: int) -> set[str]:
    """The paths of the segments that the MPI library of process `pid` has mapped.

    Raises OSError if the process has ended.
    """
    return set(_SEGMENT.findall(Path(f"/proc/{pid}/maps").read_text(errors="replace")))


def remove_mapped() -> None:
    """Remove the names of those that this process has mapped: once all have mapped them, or before it aborts.

    An MPI library does so only when it ends well; it does not miss the names then.
    """
    for segment in segments_of(os.getpid()):
        Path(segment).unlink(missing_ok=True)
