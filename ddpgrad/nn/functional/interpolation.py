"""Interpolation: images, signals and volumes (N, C, *size) at another size."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from ...backend import dtype as dtypes
from ...backend.windows import Ints
from ...core.errors import warn_program
from ...core.tensor import Tensor
from ...ops.elementwise.conversion import to, wide
from ...ops.elementwise.unary import clamp, clone, floor
from ...ops.layers import interpolation
from ...ops.layers.resample import Bands, resample
from .adaptive_pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

Factors = tuple[float | None, ...]

# The spatial dimensions that each mode takes; None: any of 1 to 3.
_DIMS = {
    "nearest": None,
    "nearest-exact": None,
    "area": None,
    "linear": 1,
    "bilinear": 2,
    "bicubic": 2,
    "lanczos": 2,
    "trilinear": 3,
}
_AREA = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """`input` (N, C, *size) brought to another `size`, or to `scale_factor` times its size.

    mode: "nearest", "nearest-exact" or "area"; "linear" for one, "bilinear", "bicubic" or "lanczos" for two
    and "trilinear" for three dimensions. align_corners: the centres of the corner elements stay
    where they are, instead of the edges. recompute_scale_factor: distances follow from the
    rounded size, not from `scale_factor`. antialias: a low-pass filter for smaller images, which "lanczos" needs.
    """
    dims = input.ndim - 2
    if _DIMS.get(mode, 0) is None and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    sizes, factors = _target(input, size, scale_factor, recompute_scale_factor)
    if antialias and (mode not in ("bilinear", "bicubic", "lanczos") or dims != 2):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic and lanczos modes and requires a 4-D tensor as input"
        )
    if mode not in _DIMS:
        raise NotImplementedError(f"interpolate(): unknown mode {mode!r}; known are {', '.join(_DIMS)}")
    if not 1 <= dims <= 3:
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for the modes: nearest | "
            f"linear | bilinear | bicubic | trilinear | area | nearest-exact (got {mode})"
        )
    if (taken := _DIMS[mode]) not in (None, dims):
        raise NotImplementedError(f"Got {input.ndim}D input, but {mode} mode needs {2 + taken}D input")
    if mode == "lanczos" and (align_corners or not antialias):
        raise ValueError("Lanczos mode requires antialias=True and does not support align_corners=True")
    if not all(input.shape[1:]):
        raise RuntimeError(
            f"Non-empty {input.ndim}D data tensor expected but got a tensor with sizes {list(input.shape)}"
        )
    if mode == "area":
        return _AREA[dims](input, sizes)
    if min(sizes) <= 0 or 0 in input.shape[2:]:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {list(input.shape[2:])} and output "
            f"{list(sizes)}"
        )
    if input.dtype.category == 1 and (mode in ("linear", "trilinear") or input.dtype is not dtypes.uint8):
        raise NotImplementedError(
            f"interpolate(): mode {mode!r} is not implemented for '{input.dtype.scalar_type}'"
        )
    if mode in ("nearest", "nearest-exact"):
        return _mixed(input, sizes, factors, interpolation.nearest, mode == "nearest-exact")
    corners = bool(align_corners)
    build: Callable[..., Bands] = interpolation.cubic if mode == "bicubic" else interpolation.linear
    options: tuple[Any, ...] = (corners,)
    if antialias:
        build, options = interpolation.filtered, (corners, mode)
    return _mixed(input, sizes, factors, build, *options)


def _target(input: Tensor, size: Any, scale_factor: Any, recompute: bool | None) -> tuple[Ints, Factors]:
    """(size of the result, factors by which distances are measured, or None where the sizes say)."""
    dims = input.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ValueError(
            "only one of size or scale_factor should be defined"
            if size is not None
            else "either size or scale_factor should be defined"
        )
    if size is not None:
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        given = size if isinstance(size, (tuple, list)) else (size,) * dims
        sizes = tuple(operator.index(n) for n in given)
        if len(sizes) != dims:
            raise ValueError(
                f"Input and output must have the same number of spatial dimensions, but got input with spatial "
                f"dimensions of {list(input.shape[2:])} and output size of {size}."
            )
        return sizes, (None,) * dims
    given = scale_factor if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * dims
    if len(given) != dims:
        raise ValueError(
            f"Input and scale_factor must have the same number of spatial dimensions, but got input with spatial "
            f"dimensions of {list(input.shape[2:])} and scale_factor of shape {scale_factor}."
        )
    factors = tuple(float(f) for f in given)
    sizes = tuple(math.floor(n * f) for n, f in zip(input.shape[2:], factors, strict=True))
    return sizes, (None,) * dims if recompute else factors


def _mixed(
    input: Tensor, sizes: Ints, factors: Factors, build: Callable[..., Bands], *options: Any
) -> Tensor:
    """One dimension after the other, by the map that `build` makes."""
    out = wide(input) if len(sizes) > 1 else input
    for i in reversed(range(len(sizes))):
        n, size, factor = input.shape[i + 2], sizes[i], factors[i]
        if n == size and factor in (None, 1.0):
            continue
        bands = build(n, size, factor, *options)
        if input.dtype is dtypes.uint8:
            mixed = resample(to(out, dtypes.float32), i + 2, bands)
            out = to(clamp(floor(mixed + 0.5), 0, 255), dtypes.uint8)
        else:
            out = resample(out, i + 2, bands)
    return clone(out) if out is input else to(out, input.dtype)


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` by its old name."""
    _deprecated("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "nearest"."""
    _deprecated("upsample_nearest")
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "bilinear" and align_corners."""
    _deprecated("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", True)


def _deprecated(name: str) -> None:
    warn_program(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.")
