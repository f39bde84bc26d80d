"""The seed of a sample: a function of (base seed, index), whichever process reads it.

The loader draws a base seed at the beginning of every epoch, as PyTorch's does.
"""

from __future__ import annotations

import contextlib
import operator
import random
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...random import rank_generator

_MASK = (1 << 64) - 1


def seed_sample(base_seed: int, index: Any) -> None:
    """Restart the global generators (ddpgrad's, `random`, `numpy.random`) for the sample at `index`."""
    key = _mix(base_seed ^ _mix(_number(index)))
    rank_generator().manual_seed(key & 0xFFFFFFFF)
    np.random.seed(key >> 32)
    random.seed(key)


def seed_worker(base_seed: int, worker_id: int) -> None:
    """Start a worker's global generators, with PyTorch's numbers."""
    seed = base_seed + worker_id
    rank_generator().manual_seed(seed)
    random.seed(seed)
    np.random.seed(_generate_state(base_seed, worker_id))


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """The seed of NumPy's generator in a worker."""
    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return np.random.SeedSequence(words).generate_state(4).tolist()


@contextlib.contextmanager
def generators_kept() -> Iterator[None]:
    """Run a block after which the global generators stand where they stood before."""
    generator = rank_generator()
    state, python, numpy = generator.get_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        generator.set_state(state)
        random.setstate(python)
        np.random.set_state(numpy)


def _mix(x: int) -> int:
    """A bijection of 64 bits that scatters neighbours (SplitMix64, doi.org/10.1145/2714064.2660195)."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _number(index: Any) -> int:
    """64 bits for an index; those of a sampler's own may be strings or tuples."""
    try:
        return operator.index(index) & _MASK
    except TypeError:
        return zlib.crc32(repr(index).encode())
