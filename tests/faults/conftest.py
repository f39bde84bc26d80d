"""Fixtures of the fault tests, and the option that runs the long ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "launcher"))
from running import Ddprun
from training import ddprun_in, run_undisturbed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak", type=float, default=10.0, metavar="S", help="seconds of random kills and restarts"
    )


@pytest.fixture
def ddprun(tmp_path: Path) -> Ddprun:
    return ddprun_in(tmp_path)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The result of train.py on two ranks when nothing goes wrong."""
    return run_undisturbed(tmp_path_factory.mktemp("undisturbed"), 2)
