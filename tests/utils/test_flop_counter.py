"""Operations counted by function and by module, in forward and backward, with and without elements."""

import threading

import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.utils.flop_counter import FlopCounterMode
from ddpgrad.utils.module_tracker import ModuleTracker


class Net(nn.Module):
    """A convolution, a layer of its result, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
        self.fc = nn.Linear(4 * 36, 10)
        self.mix = nn.Parameter(torch.ones(10, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.conv(x).flatten(1)) @ self.mix


TABLE = """
Module                            FLOP    % Total
-----------------------------  -------  ---------
Net                            43.272K    100.00%
 - aten.convolution             7.776K     17.97%
 - aten.addmm                   8.640K     19.97%
 - aten.mm                     19.080K     44.09%
 - aten.convolution_backward    7.776K     17.97%
 Net.conv                      15.552K     35.94%
  - aten.convolution            7.776K     17.97%
  - aten.convolution_backward   7.776K     17.97%
 Net.fc                        25.920K     59.90%
  - aten.addmm                  8.640K     19.97%
  - aten.mm                    17.280K     39.93%
"""


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_step_by_module(device, capsys):
    with torch.device(device):
        net, x = Net(), torch.ones(3, 1, 8, 8)
    with FlopCounterMode() as counter:
        net(x).sum().backward()
    conv, fc, mix = 2 * 3 * 36 * 4 * 9, 2 * 3 * 144 * 10, 2 * 3 * 10 * 10
    assert counter.get_total_flops() == 2 * conv + 3 * fc + 3 * mix
    counts = counter.get_flop_counts()
    assert counts["Net.fc"] == {"aten.addmm": fc, "aten.mm": 2 * fc}
    assert counts["Net.conv.0"] == {"aten.convolution": conv, "aten.convolution_backward": conv}
    assert counts["Global"] == counts["Net"]
    assert capsys.readouterr().out == f"{counter.get_table(2)}\n" and counter.get_table() == TABLE.strip()
    net(x)
    assert counter.get_flop_counts() == counts, "what runs after the block is not counted"


def test_attention_products_and_convolutions():
    with FlopCounterMode(display=False) as counter:
        q = torch.ones(2, 4, 16, 8, requires_grad=True)
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    assert counter.get_flop_counts()["Global"] == {"aten.bmm": 6 * 2 * (2 * 4 * 16 * 16 * 8)}
    with FlopCounterMode(display=False) as counter:
        (torch.ones(3, 4, requires_grad=True) @ torch.ones(4, requires_grad=True)).sum().backward()
    assert not counter.get_total_flops(), "a product with a vector has no count in PyTorch"
    assert counter.get_table().splitlines()[-1].split() == ["Global", "0", "0%"]
    with FlopCounterMode(display=False) as counter:
        x = torch.ones(2, 4, 5, 6, requires_grad=True)
        nn.ConvTranspose2d(4, 6, 3, stride=2)(x).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * x.numel() * 6 * 9


def test_counters_nest():
    x = torch.ones(8, 8)
    with FlopCounterMode(display=False) as outer:
        other = threading.Thread(target=lambda: x @ x)
        other.start()
        other.join()
        with FlopCounterMode(display=False) as inner:
            F.linear(x, x)
    assert inner.get_total_flops() == 1024 and outer.get_total_flops() == 2048


def test_which_modules_run():
    seen = []

    class Watched(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            seen.append((set(tracker.parents), tracker.is_bw))
            input.register_hook(lambda g: seen.append((set(tracker.parents), tracker.is_bw)))
            return super().forward(input)

    net = nn.Sequential(nn.Sequential(Watched(2, 2)), nn.ReLU())
    with ModuleTracker() as tracker:
        net(torch.ones(1, 2, requires_grad=True) * 1).sum().backward()
    names = {"Global", "Sequential", "Sequential.0", "Sequential.0.0"}
    assert seen[0] == (names, False) and seen[1][1] and tracker.parents == {"Global"}
