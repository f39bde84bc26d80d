"""Fixtures of the launcher's tests."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from running import Ddprun


@pytest.fixture
def ddprun(tmp_path: Path) -> Ddprun:
    return Ddprun(tmp_path)


@pytest.fixture
def mpiexec() -> str:
    """MPICH's or Open MPI's mpiexec, whichever is installed."""
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        pytest.skip('no mpiexec: pip install "ddpgrad[mpich]"')
    return found
