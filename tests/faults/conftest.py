"""Fixtures of the fault tests, and the option that runs the long ones."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "launcher"))
from running import Ddprun


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak", type=float, default=10.0, metavar="S", help="seconds of random kills and restarts"
    )


@pytest.fixture
def ddprun(tmp_path: Path) -> Ddprun:
    started = Ddprun(tmp_path)
    # Compiling kernels would take longer than all else here.
    started.environment["DDPGRAD_NUMBA"] = "0"
    return started


@pytest.fixture
def mpiexec() -> str:
    """MPICH's or Open MPI's mpiexec, whichever is installed."""
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        pytest.skip('no mpiexec: pip install "ddpgrad[mpich]"')
    return found
