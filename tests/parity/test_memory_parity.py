"""What graphs keep for backward, against PyTorch: the bytes of all different saved arrays."""

from __future__ import annotations

from typing import Any

import pytest

import ddpgrad

oracle = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def kept(torch: Any, model: Any, *inputs: Any) -> int:
    """Bytes of the different memories that the graph of `model(*inputs)` has saved."""
    seen: dict[int, int] = {}

    def pack(t: Any) -> Any:
        seen[t.data_ptr()] = max(seen.get(t.data_ptr(), 0), t.numel() * t.element_size())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = model(*inputs).sum()
    out.backward()
    return sum(seen.values())


def chain(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(*[part for _ in range(50) for part in (nn.Linear(64, 64), nn.Tanh())])


def block(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        *[
            nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
            for _ in range(10)
        ]
    )


@pytest.mark.parametrize("make", [chain, block])
def test_no_more_is_kept_than_by_pytorch(make: Any):
    ours, theirs = (kept(t, make(t), t.ones(32, 64)) for t in (ddpgrad, oracle))
    assert 0 < ours <= theirs * 1.02
