"""GPUs for tests that take no device as a parameter."""

import pytest

from ddpgrad import cuda


@pytest.fixture
def gpu() -> str:
    """'cuda', or a skip that says what is missing."""
    reason = cuda.why_not()
    if reason is not None:
        pytest.skip(reason)
    return "cuda"


@pytest.fixture
def two_gpus(gpu: str) -> None:
    if cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
