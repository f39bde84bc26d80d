"""All tests here compare with PyTorch, and have its mark."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("torch")


@pytest.fixture(autouse=True)
def settings_of_the_process() -> Iterator[None]:
    """A test finds them as they were at first, whatever ran before it: `torch.compile` turns the checks of PyTorch's
    distributions off, and a place of storages that a program names stays known."""
    import torch

    from ddpgrad.files import settings

    checks = torch.distributions.Distribution._validate_args
    registered = [torch.serialization._package_registry, settings._packages]
    before = [list(packages) for packages in registered]
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    yield
    torch.distributions.Distribution.set_default_validate_args(checks)
    for packages, those in zip(registered, before, strict=True):
        packages[:] = those
    torch.set_num_threads(threads)
    assert torch.get_default_dtype() is dtype, "the test changed PyTorch's default dtype"
    assert torch.is_grad_enabled(), "the test left PyTorch's grad mode off"
