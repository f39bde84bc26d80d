"""CUDA graphs on the stand-in: a replay has the bits of an eager step, and is one launch; what cannot be captured says so."""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakecuda
import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.utils.checkpoint import checkpoint

pytestmark = pytest.mark.fakegpu

STEPS = 7
WARM_UP = 2


class Block(nn.Module):
    """A part of a GPT: attention and a feed-forward network, both with dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out, self.drop = nn.Linear(width, width), nn.Dropout(0.1)
        self.feed = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(seen.transpose(1, 2).reshape(x.shape)))
        return x + self.drop(self.feed(x))


class Gpt(nn.Module):
    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.head, self.recompute = nn.Linear(8, 11), recompute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if self.recompute else block(h)
        return self.head(h).transpose(1, 2)


def task(kind: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model, and inputs and targets of each step."""
    torch.manual_seed(3)
    if kind.startswith("gpt"):
        tokens = torch.randint(0, 11, (STEPS, 3, 7)).cuda()
        return Gpt(kind == "gpt recomputed").cuda(), tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous()
    targets = torch.randint(0, 4, (STEPS, 8)).cuda()
    if kind == "mlp":
        layers = [nn.Linear(16, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 4)]
        return nn.Sequential(*layers).cuda(), torch.randn(STEPS, 8, 16).cuda(), targets
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.Linear(64, 4)).cuda(), torch.randn(STEPS, 8, 1, 8, 8).cuda(), targets


def course(
    kind: str, make: Callable[[Any], torch.optim.Optimizer], captured: bool, scaled: bool = False
) -> tuple[list[float], list[list[float]], list[dict[str, int]]]:
    """Losses, the final parameters, and what each step from the first replay on asked of the GPU."""
    model, inputs, targets = task(kind)
    optimizer = make(model.parameters())
    scaler = torch.amp.GradScaler("cuda", init_scale=64.0, growth_interval=2, enabled=scaled)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.float16, enabled=scaled):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss

    run: Any = torch.cuda.captured_step(step, warmup=WARM_UP) if captured else step
    losses, asked = [], []
    torch.manual_seed(5)
    for i, (x, y) in enumerate(zip(inputs, targets, strict=True)):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 / (1 + i)  # as a schedule would
        before = fakecuda.counters()
        loss = run(x, y)
        after = fakecuda.counters()
        losses.append(loss.detach())
        asked.append({name: n - before[name] for name, n in after.items()})
        assert not captured or run.why_not is None, run.why_not
    return [float(loss) for loss in losses], [p.flatten().tolist() for p in model.parameters()], asked[WARM_UP + 1 :]


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "AdamW": lambda p: torch.optim.AdamW(p, capturable=True),
    "fused AdamW": lambda p: torch.optim.AdamW(p, capturable=True, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "NAdam": lambda p: torch.optim.NAdam(p, capturable=True),
    "Adamax": lambda p: torch.optim.Adamax(p, capturable=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, capturable=True, momentum=0.5),
    "Adadelta": lambda p: torch.optim.Adadelta(p, capturable=True),
    "Rprop": lambda p: torch.optim.Rprop(p, capturable=True),
}


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        ("mlp", "AdamW"), ("cnn", "AdamW"), ("gpt", "AdamW"), ("gpt recomputed", "AdamW"), ("gpt scaled", "fused AdamW"),
        *(("mlp", name) for name in OPTIMIZERS if "AdamW" not in name),
    ],
)  # fmt: skip
def test_a_captured_step_has_the_bits_of_an_eager_one_and_is_one_launch(kind: str, optimizer: str):
    make, scaled = OPTIMIZERS[optimizer], kind == "gpt scaled"
    eager, captured = (course(kind, make, captured, scaled) for captured in (False, True))
    assert captured[:2] == eager[:2]
    assert len(set(captured[0])) == STEPS and len(captured[2]) == STEPS - WARM_UP - 1
    for asked in captured[2]:
        assert asked["graph_launches"] == 1 and asked["launches"] == asked["synchronisations"] == 0, asked
        assert asked["to_device"] == 1 and asked["to_host"] == 0, asked  # the cells
