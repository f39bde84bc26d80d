"""`torch.backends.openmp`: tells whether a library with OpenMP threads is loaded."""

from __future__ import annotations

from threadpoolctl import threadpool_info


def is_available() -> bool:
    """True when one is."""
    return any(pool["user_api"] == "openmp" for pool in threadpool_info())


__all__ = ["is_available"]
