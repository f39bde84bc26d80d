"""The random generators of a rank, as a checkpoint holds them: ddpgrad's default one, Python's and NumPy's."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np

from ddpgrad.random import Generator, get_rng_state, set_rng_state


def states() -> dict[str, Any]:
    """The states of the generators, as plain data."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()
    return {
        "ddpgrad": get_rng_state(),
        "python": [version, np.array(words, np.uint32), gauss],
        "numpy": [kind, keys, position, has_gauss, cached],
    }


def restore(state: dict[str, Any]) -> None:
    """Set the generators to `state`, which is from `states`."""
    set_rng_state(state["ddpgrad"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    np.random.set_state(tuple(state["numpy"]))


def restore_derived(state: dict[str, Any], rank: int) -> None:
    """Set the generators of a rank that did not exist when `state` was made: to streams that no other rank has."""
    seed = hashlib.sha256(state["ddpgrad"].numpy().tobytes() + rank.to_bytes(8, "little")).digest()
    set_rng_state(Generator().manual_seed(int.from_bytes(seed[:7], "little")).get_state())
    random.seed(seed[7:15])
    np.random.seed(int.from_bytes(seed[15:19], "little"))
