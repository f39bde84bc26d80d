"""Fixtures of the fault tests, and the option that runs the long ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "launcher"))
from running import Ddprun


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak", type=float, default=0.0, metavar="S", help="seconds of random kills and restarts"
    )


@pytest.fixture
def ddprun(tmp_path: Path) -> Ddprun:
    return Ddprun(tmp_path)
