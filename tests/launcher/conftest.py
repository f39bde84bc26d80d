"""Fixtures of the launcher's tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from running import Ddprun


@pytest.fixture
def ddprun(tmp_path: Path) -> Ddprun:
    return Ddprun(tmp_path)
