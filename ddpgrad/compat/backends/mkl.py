"""`torch.backends.mkl`: Intel's BLAS, if it is installed beside NumPy or NumPy was built with it."""

from __future__ import annotations

from threadpoolctl import threadpool_info

from ...backend.cpu import mkl


def is_available() -> bool:
    """True when MKL multiplies matrices."""
    return mkl.chosen() is not None or any(pool["internal_api"] == "mkl" for pool in threadpool_info())


__all__ = ["is_available"]
