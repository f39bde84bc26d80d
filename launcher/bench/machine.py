"""What a figure is a figure of: processor, cores, memory, GPU and versions. Others are not compared with it."""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from ddpgrad.core.errors import LaunchError

from ..job import run_config
from ..job.plan import usable_cores

# In which two measurements may differ and yet be compared: that is what they are often for.
_MAY_DIFFER = ("ddpgrad", "torch")


def describe() -> dict[str, str]:
    """This machine, as text by name. Source of the processor's name: /proc/cpuinfo, where there is one."""
    told = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*:\s*(.+)", told)
    found = {
        "host": socket.gethostname(),
        "processor": model[1].strip() if model else platform.processor() or platform.machine(),
        "cores": f"{usable_cores()} usable of {os.cpu_count()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.1f} GiB",
    }
    return found | run_config.versions()


def check_alike(now: Mapping[str, str], before: Mapping[str, str], where: Path) -> None:
    """Raise LaunchError where `before`, which was measured in the folder `where`, is of another machine."""
    other = [
        f"{name} {before.get(name, 'not there')}, now {now.get(name, 'not there')}"
        for name in sorted({*now, *before} - {*_MAY_DIFFER})
        if now.get(name) != before.get(name)
    ]
    if other:
        raise LaunchError(
            f"--against {where}: it was measured on another machine, or with other versions ({'; '.join(other)}). Such "
            "figures say nothing about each other: measure both here"
        )
