"""Copies in the order of the dimensions hold the same numbers, whatever way the memory runs."""

import itertools

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad import environment
from ddpgrad.backend.cpu import shape

if not environment.numba_enabled():
    pytest.skip("DDPGRAD_NUMBA=0 switches the kernels off", allow_module_level=True)

SIZES = [(64, 65), (300, 17), (3, 40, 37), (2, 16, 9, 16), (2, 33, 1, 80), (1, 80, 80)]


@pytest.mark.parametrize("sizes", SIZES)
def test_any_order_of_memory(sizes):
    numbers = np.arange(2 * np.prod(sizes), dtype=np.float32)
    turned = 0
    for order in itertools.permutations(range(len(sizes))):
        dense = numbers[: numbers.size // 2].reshape(sizes)
        for x in (dense, numbers.reshape(*sizes[:-1], -1)[..., ::2], dense[..., ::-1]):
            x = x.transpose(order)
            out = shape.to_contiguous(x)
            if out is not NotImplemented:
                turned += 1
                assert out.flags.c_contiguous and out.base is None, "a gradient that is a view is copied"
                np.testing.assert_array_equal(out, x)
                assert not np.shares_memory(out, x)
    assert turned, "the kernel is for these"
    spread = np.broadcast_to(numbers[:80], (80, 80)).T
    assert shape.to_contiguous(spread) is NotImplemented


@pytest.mark.parametrize("shape", [(300, 500), (3, 200, 300), (400, 17, 50)])
def test_matrices_that_lie_turned_are_written_turned(shape):
    x = torch.tensor(np.random.default_rng(0).standard_normal(shape, np.float32)).transpose(-1, -2)
    expected = np.ascontiguousarray(x.numpy())
    out = torch.full((x.shape[0] + 2, *x.shape[1:]), -1.0)
    out[1:-1] = x
    assert np.array_equal(out[1:-1].numpy(), expected) and (out[0] == -1).all() and (out[-1] == -1).all()
    leaf = torch.zeros(shape, requires_grad=True)
    leaf.transpose(-1, -2).backward(torch.tensor(expected))
    assert leaf.grad.is_contiguous() and np.array_equal(leaf.grad.numpy(), x.transpose(-1, -2).numpy())
