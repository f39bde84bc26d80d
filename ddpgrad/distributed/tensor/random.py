"""Seeds of what DTensors draw: every rank draws the numbers of the whole, so that all have to have the same one."""

from __future__ import annotations

from ...random import manual_seed as seed_all
from ..device_mesh import DeviceMesh


def is_rng_supported_mesh(device_mesh: DeviceMesh) -> bool:
    """Whether DTensors on `device_mesh` are filled with the numbers that one rank alone would draw: always."""
    return True


def manual_seed(seed: int, device_mesh: DeviceMesh) -> None:
    """As `torch.manual_seed`, on a rank of `device_mesh`."""
    if device_mesh.get_coordinate() is None:
        raise RuntimeError("manual_seed requires the current rank to be a part of the device mesh")
    seed_all(seed)
