"""Random numbers on GPUs: one generator of the rank serves all its devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import random
from ..core.tensor import Tensor
from .devices import device_count


def manual_seed(seed: int) -> None:
    """Restart this rank's default generator: the keys of GPU kernels are drawn from it as well."""
    random.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """As `manual_seed`: a rank has one generator for all its devices."""
    random.manual_seed(seed)


def seed() -> None:
    """Restart this rank's default generator from a seed that the operating system draws."""
    random.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed that this rank's default generator was last restarted from."""
    return random.initial_seed()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """The state of this rank's default generator."""
    return random.get_rng_state()


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Continue this rank's default generator from `new_state`."""
    random.set_rng_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """One state for each GPU, all the same; none without GPUs."""
    return [random.get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Sequence[Tensor]) -> None:
    """Continue from the first of `new_states`; nothing to do for none."""
    if new_states:
        random.set_rng_state(new_states[0])


__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "set_rng_state", "set_rng_state_all",
]  # fmt: skip
