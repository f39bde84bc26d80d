"""How much memory chains of layers keep for backward, beside PyTorch's, counted by hooks on saved tensors."""

from collections.abc import Callable
from typing import Any

import pytest
import torch as oracle

import ddpgrad

LAYERS = 50
CHAINS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "tanh": lambda t, x, w: x.tanh(),
    "sigmoid": lambda t, x, w: x.sigmoid(),
    "relu": lambda t, x, w: x.relu(),
    "exp": lambda t, x, w: x.exp(),
    "sin": lambda t, x, w: x.sin(),
    "number": lambda t, x, w: x * 2 + 1,
    "product": lambda t, x, w: x * x,
    "linear": lambda t, x, w: t.nn.functional.linear(x, w),
    "softmax": lambda t, x, w: t.softmax(x, -1),
    "layer norm": lambda t, x, w: t.nn.functional.layer_norm(x, (32,)),
    "gelu": lambda t, x, w: t.nn.functional.gelu(x),
    "reshape": lambda t, x, w: x.reshape(32, 64).t().reshape(64, 32),
    "mean": lambda t, x, w: x - x.mean(-1, keepdim=True),
    "linear and tanh": lambda t, x, w: t.nn.functional.linear(x, w).tanh(),
    "block": lambda t, x, w: t.nn.functional.gelu(t.nn.functional.layer_norm(x, (32,)) @ w.t()) @ w,
}


def kept(torch: Any, layer: Callable[[Any, Any, Any], Any]) -> int:
    """Bytes in different places that the chain keeps besides its input and the weight."""
    x = torch.ones(64, 32, requires_grad=True)
    w = torch.ones(32, 32, requires_grad=True)
    saved: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        saved[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        h = x
        for _ in range(LAYERS):
            h = layer(torch, h, w)
    saved.pop(x.data_ptr(), None)
    saved.pop(w.data_ptr(), None)
    return sum(saved.values())


@pytest.mark.parametrize("name", CHAINS)
def test_no_more_is_kept_than_in_pytorch(name: str):
    ours, theirs = kept(ddpgrad, CHAINS[name]), kept(oracle, CHAINS[name])
    assert ours <= theirs
    if theirs > 64 * 32 * 4 * LAYERS // 2:
        assert ours > 0, "the hooks have seen nothing"
