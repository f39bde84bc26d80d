"""The examples as modules, and as the programs that users start."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.append(str(EXAMPLES))

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`run(ranks, "digits.py", *arguments)` runs an example through ddprun, in a folder of the test's own.

    `procs` may be fewer than the ranks, which takes less time to start.
    """

    def start(
        ranks: int, script: str, *arguments: str, procs: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        launch = [sys.executable, "-m", "ddpgrad.launcher", "-n", str(ranks), "--procs", str(procs or ranks)]
        command = [*launch, str(EXAMPLES / script), *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)

    return start
