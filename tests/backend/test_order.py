"""Copies in the order of the dimensions hold the same numbers, whatever way the memory runs."""

import itertools

import numpy as np
import pytest

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
