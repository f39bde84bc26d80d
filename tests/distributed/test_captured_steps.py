"""Replays of a captured step on a CPU communicate as eager steps do."""

from typing import Any

import numpy as np
from replicas import ranks

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.nn.parallel import DistributedDataParallel


def test_ranks_communicate_in_replays():
    def program(capture: bool) -> list[Any]:
        draw = np.random.default_rng(torch.distributed.get_rank())
        torch.manual_seed(torch.distributed.get_rank())
        wide = nn.Sequential(nn.Linear(6, 160), nn.BatchNorm1d(160), nn.Linear(160, 1200), nn.Linear(1200, 3))
        model = DistributedDataParallel(wide)
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            with model.no_sync():
                F.cross_entropy(model(x), y).backward()
            loss = F.cross_entropy(model(x * 2), y)
            loss.backward()
            optimizer.step()
            return loss

        run: Any = torch.captured_step(step, warmup=1) if capture else step
        bits = []
        for _ in range(6):
            x = torch.tensor(draw.standard_normal((8, 6)).astype(np.float32))
            bits.append(run(x, torch.tensor(draw.integers(0, 3, 8))).item())
        assert getattr(run, "why_not", None) is None
        return [*bits, *[p.detach().numpy().tobytes() for p in model.parameters()]]

    assert ranks(2, lambda: program(True)) == ranks(2, lambda: program(False))
