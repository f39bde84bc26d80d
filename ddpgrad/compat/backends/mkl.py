"""`torch.backends.mkl`: Intel's BLAS, if NumPy was built with it."""

from __future__ import annotations

from threadpoolctl import threadpool_info


def is_available() -> bool:
    """True when NumPy computes with MKL."""
    return any(pool["internal_api"] == "mkl" for pool in threadpool_info())


__all__ = ["is_available"]
