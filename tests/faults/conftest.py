"""Fixtures of the fault tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "launcher"))
from running import Ddprun
from training import run_undisturbed


@pytest.fixture
def ddprun(tmp_path: Path) -> Ddprun:
    return Ddprun(tmp_path)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The result of train.py on two ranks when nothing goes wrong."""
    return run_undisturbed(tmp_path_factory.mktemp("undisturbed"), 2)
