"""The elementary kernels, over an array library `xp` that follows the array API.

NumPy and CuPy share these definitions; each device kind adds faster or native versions of
its own (see `cpu/`, `cuda/`). Names and arguments are those of the ops of the same name,
which are PyTorch's; `dim` may be an int, a tuple of ints or None (all).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from .arithmetic import composed, ufuncs
from .creation import creation
from .indexing import indexing
from .matrix import matrices
from .reduction import reductions
from .shape import shapes

_FAMILIES = (ufuncs, composed, reductions, shapes, indexing, creation, matrices)


def elementary(xp: ModuleType) -> dict[str, Any]:
    """Kernel name -> function on the arrays of `xp`."""
    return {name: kernel for family in _FAMILIES for name, kernel in family(xp).items()}
