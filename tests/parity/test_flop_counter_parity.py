"""Counts of operations against PyTorch's, by function and by module, on a CPU and on meta."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import ddpgrad
from ddpgrad.utils.flop_counter import FlopCounterMode


def mlp(t: Any) -> Any:
    return t.nn.Sequential(t.nn.Linear(3, 5), t.nn.ReLU(), t.nn.Linear(5, 2, bias=False)), (7, 3)


def cnn(t: Any) -> Any:
    nn = t.nn
    body = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    grouped = nn.Sequential(nn.Conv2d(8, 8, 3, groups=4, dilation=2), nn.Conv2d(8, 4, 1))
    return nn.Sequential(
        body, grouped, nn.ConvTranspose2d(4, 6, 3, stride=2), nn.Flatten(), nn.Linear(486, 2)
    ), (2, 3, 16, 16)


def volume(t: Any) -> Any:
    return t.nn.Sequential(t.nn.Conv3d(2, 4, 3), t.nn.Flatten(2), t.nn.Conv1d(4, 2, 5)), (2, 2, 5, 6, 7)


def block(t: Any) -> Any:
    class Block(t.nn.Module):
        """Attention with dropout, which PyTorch counts on a CPU too, and two layers."""

        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = t.nn.Linear(8, 24), t.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            b, n, d = x.shape
            q, k, v = (p.reshape(b, n, 2, -1).transpose(1, 2) for p in self.qkv(x).split(d, -1))
            heads = t.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
            return x + self.out(heads.transpose(1, 2).reshape(b, n, d))

    return t.nn.Sequential(Block(), Block(), t.nn.Linear(8, 3)), (2, 5, 8)


def recurrent(t: Any) -> Any:
    class Last(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = t.nn.GRU(4, 8)

        def forward(self, x: Any) -> Any:
            return self.rnn(x)[0]

    return Last(), (5, 2, 4)


def counts(t: Any, counter: Any, make: Callable[[Any], Any], device: str, need_input: bool) -> dict[str, Any]:
    with t.device(device):
        model, shape = make(t)
        x = t.ones(*shape, requires_grad=need_input)
    with counter(display=False) as mode:
        model(x).sum().backward()
        with t.no_grad():
            model(x)
    return {name: {str(k): v for k, v in of.items()} for name, of in mode.get_flop_counts().items()}


@pytest.mark.parametrize("need_input", [False, True])
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("make", [mlp, cnn, volume, block, recurrent])
def test_counts_are_pytorchs(make: Any, device: str, need_input: bool):
    from torch.utils.flop_counter import FlopCounterMode as Theirs

    want = counts(torch, Theirs, make, device, need_input)
    got = counts(ddpgrad, FlopCounterMode, make, device, need_input)
    if make in (block, recurrent):  # whose products are of another name: "mm" and a sum, or "addmm"
        want, got = ({name: sum(of.values()) for name, of in found.items()} for found in (want, got))
    assert got == want
