"""The CPU backend: NumPy for the elementary kernels, Numba for the fused ones."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from math import prod
from typing import Any

import numpy as np

from ...core import environment
from .. import device
from ..dtype import PREPARE, numpy_of
from ..elementary import elementary
from ..registry import Backend, kernels_in
from .threads import WORTH_SHARING

# Modules of fused kernels, loaded when one of their kernels is first used.
_FAMILIES = (
    "activation", "attention", "compressed_product", "conv", "ctc", "division", "dropout", "embedding", "fold", "fused_sums", "grid", "group_norm", "loss", "norm", "optimizer",
    "partial_order", "piecewise", "places", "places_along", "pointwise", "pool", "recurrent", "reduce", "resample", "rows", "scans", "selection", "shape", "special",
)  # fmt: skip
# Those that have functions for other modules as well.
_MIXED_FAMILIES = {
    "half": ("cast",),
    "half_loops": ("by_a_number",),
    "matmul": ("linear", "matmul", "weight_gradient"),
}
# Those that need no Numba.
_PLAIN_FAMILIES = ("lapack",)

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 << 20  # glibc takes no larger one; arrays above it are few
_NEVER = 2**31 - 1


def _device_of(array: Any) -> device.Device:
    return device.CPU


def _moves(few: Mapping[str, Any]) -> dict[str, Any]:
    """Copies and fills, of which threads share large ones (`moves.py`, which a rank loads that has such). few: for others."""

    moves = partial(import_module, ".moves", __name__)

    def overwrite(out: Any, value: Any) -> None:
        if out.size < WORTH_SHARING:
            out[...] = value
        else:
            moves().overwrite(out, value)

    def full(shape: Sequence[int], value: Any, dtype: Any, like: Any = None) -> Any:
        kind = numpy_of(dtype)
        if value.__class__ is int and not value:
            return np.zeros(shape, kind)
        if prod(shape) < WORTH_SHARING:
            return np.full(shape, value, kind)
        return moves().filled(shape, value, kind)

    def full_like(input: Any, value: Any) -> Any:
        return full(input.shape, value, input.dtype)

    def clone(input: Any, memory_format: Any = None) -> Any:
        if memory_format is not None or input.size < WORTH_SHARING:
            return few["clone"](input, memory_format)
        return moves().copied(input)

    def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
        first = tensors[0]
        if first.size * len(tensors) < WORTH_SHARING or any(
            x.dtype != first.dtype or not x.flags.c_contiguous for x in tensors
        ):
            return few["cat"](tensors, dim)
        return moves().joined(tensors, dim)

    return {"overwrite": overwrite, "full": full, "full_like": full_like, "clone": clone, "cat": cat}


def _prepare_halves() -> None:
    from .half_loops import install

    install()


def load() -> Backend:
    """The CPU backend. Without Numba (DDPGRAD_NUMBA=0) every kernel is the portable one."""
    if not environment.allocator_chosen():
        _keep_freed_memory()
    # Like PyTorch, say nothing of infinities and nans that arithmetic makes; only where ddpgrad computes.
    for text in ("divide by zero", "invalid value", "overflow", "underflow"):
        warnings.filterwarnings("ignore", f"{text} encountered", RuntimeWarning, module=r"ddpgrad\.")
    families, kernels = kernels_in(__name__, _PLAIN_FAMILIES), elementary(np)
    if environment.numba_enabled():
        kernels = kernels | _moves(kernels)
        families |= kernels_in(__name__, _FAMILIES)
        families |= {f"{__name__}.{module}": names for module, names in _MIXED_FAMILIES.items()}
        PREPARE.append(_prepare_halves)
    return Backend("cpu", np.ndarray, kernels, families, _device_of)


def _keep_freed_memory() -> bool:
    """Have the C library keep freed memory for the next arrays. False where it has no such setting.

    Every training step asks for arrays of the same sizes. By default glibc gives large ones back to the system at once and
    asks for new pages in the next step, each of which the kernel has to clear: for the GPT of the benchmarks 10,000 a step.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD) and mallopt(_M_TRIM_THRESHOLD, _NEVER))
