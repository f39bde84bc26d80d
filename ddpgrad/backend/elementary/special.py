"""Special functions, by SciPy on a CPU and by CuPy's copy of its interface on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from ..dtype import NARROW, float32
from ..registry import backend_for

Array = Any


def special(xp: ModuleType) -> dict[str, Any]:
    @cache
    def library() -> ModuleType:
        # Importing it takes longer than importing ddpgrad, and few programs need it.
        return import_module("cupyx.scipy.special" if xp.__name__ == "cupy" else "scipy.special")

    def named(name: str) -> Callable[..., Array]:
        def kernel(*operands: Any) -> Array:
            dtype = next(x.dtype for x in operands if hasattr(x, "dtype"))
            if dtype in NARROW:
                F = backend_for(next(x for x in operands if hasattr(x, "dtype")))
                wide = [F.cast(x, float32) if hasattr(x, "dtype") else x for x in operands]
                return F.cast(getattr(library(), name)(*wide), dtype)
            return getattr(library(), name)(*operands)

        kernel.__name__ = name
        return kernel

    same_name = [
        "erf", "erfc", "erfinv", "erfcx", "ndtr", "ndtri", "log_ndtr", "entr", "i0", "i0e", "i1", "i1e", "xlogy",
        "xlog1py", "zeta",
    ]  # fmt: skip
    renamed = {
        "lgamma": "gammaln", "digamma": "psi", "igamma": "gammainc", "igammac": "gammaincc", "bessel_j0": "j0",
        "bessel_j1": "j1", "bessel_y0": "y0", "bessel_y1": "y1", "modified_bessel_k0": "k0", "modified_bessel_k1": "k1",
        "scaled_modified_bessel_k0": "k0e", "scaled_modified_bessel_k1": "k1e",
    }  # fmt: skip
    return {name: named(name) for name in same_name} | {k: named(v) for k, v in renamed.items()}
