"""A plugin of pytest: three threads share every kernel, however small. `PYTHONPATH=tests/helpers pytest -p share_all tests/nn`."""

import ddpgrad as torch
from ddpgrad.backend.cpu import loss, matmul, threads


def pytest_configure() -> None:
    threads.WORTH_SHARING = loss.WORTH_SHARING = 0
    matmul._MANY = matmul._MANY_OF_A_VECTOR = 0
    torch.set_num_threads(3)
