"""Fixtures for tests of distributed programs: `pytest_plugins = ["ddpgrad.pytest_plugin"]` in conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .distributed import simulate

WORLD_SIZES = (1, 2, 4)


@pytest.fixture(params=WORLD_SIZES, ids=lambda size: f"{size}-ranks")
def as_ranks(request: pytest.FixtureRequest) -> Callable[[Callable[[], Any]], list[Any]]:
    """`as_ranks(program)` runs it as 1, 2 and 4 ranks of this process, a test each; the results by rank."""
    return lambda program: simulate(program, request.param)
