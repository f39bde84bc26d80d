"""The elementary kernels, over an array library `xp` that follows the array API.

NumPy and CuPy share these definitions; each device kind adds faster or native versions of
its own (see `cpu/`, `cuda/`). Names and arguments are those of the ops of the same name,
which are PyTorch's; `dim` may be an int, a tuple of ints or None (all).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from .arithmetic import composed, guarded, ufuncs
from .creation import creation
from .fourier import transforms
from .indexing import indexing
from .linalg import linear_algebra, matrices
from .reduction import reductions, scans
from .shape import shapes
from .sorting import sorting
from .special import special

_FAMILIES = (
    ufuncs, guarded, composed, special, reductions, scans, sorting, shapes, indexing, creation, matrices, linear_algebra, transforms,
)  # fmt: skip


def elementary(xp: ModuleType) -> dict[str, Any]:
    """Kernel name -> function on the arrays of `xp`."""
    return {name: kernel for family in _FAMILIES for name, kernel in family(xp).items()}
