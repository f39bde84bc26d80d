"""How long is long on this machine, with all that runs beside the tests."""

import subprocess
import sys
import time
from functools import cache


@cache
def patience() -> int:
    """Seconds in which every rank of a test that is well gives a sign of life: some starts of a process."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import ddpgrad.distributed"], check=True)
    return max(4, round(5 * (time.monotonic() - began)))
