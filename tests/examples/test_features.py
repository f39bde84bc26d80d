"""The short examples, each on two ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FEATURES = Path(__file__).parents[2] / "examples" / "features"


def test_fully_shard():
    command = [sys.executable, "-m", "ddpgrad.launcher", "-n", "2", str(FEATURES / "fully_shard.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "rank 0 keeps 2277 of 4554 parameters" in done.stdout
