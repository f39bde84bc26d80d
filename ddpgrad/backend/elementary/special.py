"""Special functions, by SciPy on a CPU and by CuPy's copy of its interface on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from ..dtype import NARROW
from ..registry import backend_for

Array = Any


def special(xp: ModuleType) -> dict[str, Any]:
    @cache
    def library() -> ModuleType:
        # Importing it takes longer than importing ddpgrad, and few programs need it.
        return import_module("cupyx.scipy.special" if xp.__name__ == "cupy" else "scipy.special")

    def named(name: str, item: int | None = None) -> Callable[..., Array]:
        def kernel(*operands: Any) -> Array:
            array = next(x for x in operands if hasattr(x, "dtype"))
            narrow, F = array.dtype in NARROW, backend_for(array)
            kind = np.dtype(np.float32) if narrow else array.dtype  # numbers of Python's would be float64
            given = [
                kind.type(x) if not hasattr(x, "dtype") else F.cast(x, kind) if narrow else x
                for x in operands
            ]
            out = getattr(library(), name)(*given)
            out = out if item is None else out[item]
            return F.cast(out, array.dtype) if narrow else out

        kernel.__name__ = name
        return kernel

    log_gamma = named("gammaln")

    def lgamma(input: Array) -> Array:
        out = log_gamma(input)
        return xp.where(input == -xp.inf, out.dtype.type(xp.inf), out)  # as in C; for SciPy it is -inf

    same_name = [
        "erf", "erfc", "erfinv", "erfcx", "ndtr", "ndtri", "log_ndtr", "entr", "i0", "i0e", "i1", "i1e", "xlogy",
        "xlog1py", "zeta",
    ]  # fmt: skip
    renamed = {
        "digamma": "psi", "igamma": "gammainc", "igammac": "gammaincc", "bessel_j0": "j0", "bessel_j1": "j1", "bessel_y0": "y0",
        "bessel_y1": "y1", "modified_bessel_k0": "k0", "modified_bessel_k1": "k1",
        "scaled_modified_bessel_k0": "k0e", "scaled_modified_bessel_k1": "k1e",
    }  # fmt: skip
    kernels = {name: named(name) for name in same_name} | {k: named(v) for k, v in renamed.items()}
    if xp.__name__ != "cupy":  # which lacks it
        kernels["airy_ai"] = named("airy", 0)
    return kernels | {"lgamma": lgamma}
