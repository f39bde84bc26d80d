"""A plugin of pytest: three threads share every kernel, however small. `PYTHONPATH=tests/helpers pytest -p share_all tests/nn`."""

from pathlib import Path

import ddpgrad as torch
from ddpgrad.backend.cpu import loss, matmul, threads

# Tests of what shares no kernel, or that say how many threads there are.
OTHERS = (
    "test_division.py", "test_fourier.py", "test_kernel_cache.py", "test_linalg.py", "test_linalg_refusals.py", "test_threads.py",
)  # fmt: skip


def pytest_configure() -> None:
    threads.WORTH_SHARING = loss.WORTH_SHARING = 0
    matmul._MANY = matmul._MANY_OF_A_VECTOR = 0
    torch.set_num_threads(3)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path.name in OTHERS else None
