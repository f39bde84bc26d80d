"""What the tests of data parallelism share: ranks of one process, models, batches, gradients."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.device_mesh import DeviceMesh
from ddpgrad.distributed.tensor import DTensor

BATCH = 12


def ranks(n: int, program: Callable[[], Any]) -> list[Any]:
    """The results of `program` on `n` ranks of this process, each within a process group."""

    def run() -> Any:
        dist.init_process_group()
        try:
            return program()
        finally:
            dist.destroy_process_group()

    return dist.simulate(run, n)


def on_ranks(n: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a test that is a program: it runs on `n` ranks of this process."""

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(*args: Any, **given: Any) -> None:
            ranks(n, lambda: test(*args, **given))

        return run

    return decorated


def line() -> DeviceMesh:
    """The mesh of all ranks in one dimension."""
    return dist.init_device_mesh("cpu", (dist.get_world_size(),))


def on_line(n: int, program: Callable[[DeviceMesh], Any]) -> list[Any]:
    """As `ranks`, of a program that is given the mesh."""
    return ranks(n, lambda: program(line()))


def share(batch: torch.Tensor) -> torch.Tensor:
    """This rank's part of a batch."""
    return batch.chunk(dist.get_world_size())[dist.get_rank()]


def gradients(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: p.grad.numpy().copy() for name, p in model.named_parameters() if p.grad is not None}


def whole(tensor: torch.Tensor) -> np.ndarray:
    """A copy of a tensor, or of what a DTensor is a part of."""
    tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return tensor.detach().numpy().copy()


def assert_close(
    got: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float = 1e-6
) -> None:
    """Each gradient within `tolerance` of the largest element expected in it."""
    assert list(got) == list(expected)
    for name, array in expected.items():
        assert np.abs(got[name] - array).max() <= tolerance * np.abs(array).max(), name


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 4))


def convolution() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(6 * 9, 4)]
    return nn.Sequential(*layers)


class Words(nn.Module):
    """Embedding, attention and LayerNorm, with the embedding used twice: a small language model."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.mix, self.norm = nn.Embedding(9, 16), nn.Linear(16, 48), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.table(x)
        q, k, v = (t.view(*x.shape, 2, 8).transpose(1, 2) for t in self.mix(h).chunk(3, dim=-1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(*x.shape, 16)
        return F.linear(self.norm(h + a), self.table.weight).transpose(1, 2)


def batch_for(build: Callable[[], nn.Module]) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    if build is Words:
        return torch.randint(0, 9, (BATCH, 7)), torch.randint(0, 9, (BATCH, 7))
    x = torch.randn(BATCH, 1, 6, 6) if build is convolution else torch.randn(BATCH, 6)
    return x, torch.randint(0, 4, (BATCH,))
