"""`torch.__config__`: the libraries that this installation computes with, as text."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_info

from ..version import __version__, vocabulary
from .settings import get_num_threads


def show() -> str:
    """Versions of this package and NumPy, and the BLAS libraries that are loaded."""
    pools = [
        f"  - {pool['user_api']}: {pool['internal_api']} {pool['version']}, {pool['num_threads']} threads"
        for pool in threadpool_info()
    ]
    head = f"ddpgrad {__version__} (PyTorch's vocabulary of {vocabulary}) built with:\n  - NumPy {np.__version__}"
    return "\n".join([head, *pools]) + "\n"


def parallel_info() -> str:
    """The threads that BLAS may use."""
    return f"BLAS threads: {get_num_threads()}\nops run one after another\n"


__all__ = ["parallel_info", "show"]
