"""Shared fixtures: devices by parameter, mpiexec, and a check that a test leaves no global state behind."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import ddpgrad


def _cuda_missing() -> str | None:
    """Why there is no CUDA device here, or None."""
    if find_spec("cupy") is None:
        return "CuPy is not installed"
    return None if ddpgrad.cuda.is_available() else "no CUDA device"


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Each device kind in turn; skips where there is none."""
    if request.param == "cuda" and (reason := _cuda_missing()):
        pytest.skip(reason)
    return request.param


@pytest.fixture
def mpiexec() -> str:
    """MPICH's or Open MPI's mpiexec, whichever is installed."""
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        pytest.skip('no mpiexec: pip install "ddpgrad[mpich]"')
    return found


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """A test must leave grad mode, default dtype and process group as it found them."""
    ddpgrad.manual_seed(0)
    dtype = ddpgrad.get_default_dtype()
    yield
    assert ddpgrad.is_grad_enabled(), "the test left grad mode off"
    assert ddpgrad.get_default_dtype() is dtype, "the test changed the default dtype"
    assert not ddpgrad.distributed.is_initialized(), "the test left a process group behind"
