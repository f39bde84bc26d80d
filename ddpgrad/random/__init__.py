"""The random streams of a rank: its default generator, seeds and states.

Every rank has a default generator of its own (`rank_generator`). Kernels that make
their own numbers on a GPU (`on_gpu.py`, dropout) take a key from `Generator.raw64`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend.device import Device, capturing
from ..core.face import below
from ..core.rank_local import RankLocal
from .generator import Generator

if TYPE_CHECKING:
    from ..core.tensor import Tensor


_default: RankLocal[Generator] = RankLocal(Generator)


def rank_generator() -> Generator:
    """The calling rank's generator: what draws when no generator is given."""
    return _default.get()


def __getattr__(name: str) -> Any:
    """`default_generator`: PyTorch's name for the calling rank's."""
    return rank_generator() if name == "default_generator" else below(sys.modules[__name__], name)


def source(generator: Generator | None, device: Device) -> Generator:
    """What draws for tensors on a device: `generator` or the default one, or on a GPU what takes its keys from that.

    On meta, what makes shapes. All have the methods of a Generator that draw.
    """
    if device.type == "meta":
        from .shapes import Shapes

        return Shapes(rank_generator())  # type: ignore[return-value]
    generator = rank_generator() if generator is None else generator
    if device.type == "cuda":
        from .on_gpu import GpuDraws

        return GpuDraws(generator, device)  # type: ignore[return-value]
    return generator


def gpu_key(generator: Generator) -> int:
    """The key of one kernel that makes random numbers: a draw of 64 bits, of which each replay of a graph makes its own."""
    return generator.raw64() if capturing.now is None else capturing.now.key(generator)


def manual_seed(seed: int) -> Generator:
    """Restart this rank's default generator from `seed`, and return it."""
    return rank_generator().manual_seed(seed)


def seed() -> int:
    """Restart this rank's default generator from a seed that the operating system draws; return it."""
    return rank_generator().seed()


def initial_seed() -> int:
    """The seed that this rank's default generator was last restarted from."""
    return rank_generator().initial_seed()


def get_rng_state() -> Tensor:
    """The state of this rank's default generator, a uint8 tensor."""
    return rank_generator().get_state()


def set_rng_state(new_state: Tensor | np.ndarray) -> None:
    """Continue this rank's default generator from `new_state`."""
    rank_generator().set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, device_type: str = "cuda") -> Iterator[None]:
    """Run a block after which this rank's default generator stands where it stood before.

    devices, device_type: accepted for PyTorch's sake; device kernels draw their keys from the host's stream.
    """
    if not enabled:
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
