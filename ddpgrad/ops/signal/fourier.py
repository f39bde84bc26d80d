"""Discrete Fourier transforms: `ddpgrad.fft` and the three kernels that its functions are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import numpy as np

from ...backend import dtype as dtypes
from ...backend.elementary.fourier import SWAPPED
from ...core.size import as_ints
from ...core.tensor import Tensor
from ..creation.factories import finish
from ..dispatch.autocast import in_float32
from ..dispatch.declare import primitive
from ..dispatch.signatures import TakesOut
from ..dispatch.tensor_function import tensor_function
from ..dispatch.vocabulary import VOCABULARY
from ..reduction.reduce import wrap_dim
from ..shape import shape

P = ParamSpec("P")

# -- kernels ---------------------------------------------------------------------------------------


@primitive(
    grads={"input": lambda F, g, dim, norm, forward: F.fft_c2c(g, dim, norm, forward)},
    method=False,
    grad_name="FftC2CBackward0",
)
def fft_c2c(F: Any, input: Tensor, dim: Sequence[int], norm: str, forward: bool) -> Tensor:
    """The transform of a complex tensor along `dim`; `norm` says which direction is divided by the length."""
    ...


def _r2c_rule(F: Any, g: Any, input_shape: Any, dim: int, norm: str, forward: bool) -> Any:
    widths = [(0, 0)] * len(input_shape)
    widths[dim] = (0, input_shape[dim] - g.shape[dim])
    return F.real(F.fft_c2c(F.constant_pad(g, widths, 0.0), (dim,), SWAPPED[norm], not forward))


@primitive(grads={"input": _r2c_rule}, method=False, holomorphic=False, grad_name="FftR2CBackward0")
def fft_r2c(F: Any, input: Tensor, dim: int, norm: str, forward: bool) -> Tensor:
    """The first half, and one, of the transform of a real tensor, whose other half mirrors it."""
    ...


def _c2r_rule(F: Any, g: Any, input_shape: Any, dim: int, n: int, norm: str, forward: bool) -> Any:
    grad = F.fft_r2c(g, dim, SWAPPED[norm], not forward)
    # What the forward mirrored counts twice: all but the mean and, for even n, the highest frequency.
    size = input_shape[dim]
    twice = n - size
    parts = [
        F.narrow(grad, dim, 0, 1), F.narrow(grad, dim, 1, twice) * 2,
        F.narrow(grad, dim, 1 + twice, size - 1 - twice),
    ]  # fmt: skip
    return F.cat([p for p in parts if p.shape[dim]], dim)


@primitive(grads={"input": _c2r_rule}, method=False, grad_name="FftC2RBackward0")
def fft_c2r(F: Any, input: Tensor, dim: int, n: int, norm: str, forward: bool) -> Tensor:
    """The real transform, of length `n`, of the first half of a spectrum that mirrors itself."""
    ...


# -- arguments ---------------------------------------------------------------------------------------


def _norm(norm: str | None) -> str:
    if norm not in (None, "backward", "forward", "ortho"):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"; it is "backward", "forward" or "ortho"')
    return norm or "backward"


def _floating(name: str, input: Tensor) -> Tensor:
    """Integers as the default floating-point type; 16-bit floats have no transform here, save in float32 under autocast."""
    if input.dtype.category < 2:
        return input.to(dtypes.get_default_dtype())
    if input.dtype.itemsize < 4:
        if in_float32(input):
            return input.to(dtypes.float32)
        raise RuntimeError(f"{name}: Unsupported dtype {input.dtype.name}; use float32 or float64")
    return input


def _complex(name: str, input: Tensor) -> Tensor:
    input = _floating(name, input)
    if input.dtype.is_complex:
        return input
    return input.to(dtypes.complex128 if input.dtype is dtypes.float64 else dtypes.complex64)


def _real(name: str, input: Tensor) -> Tensor:
    if input.dtype.is_complex:
        raise RuntimeError(f"{name} expects a real input tensor, but got {input.dtype.name}")
    return _floating(name, input)


def _length(n: int | None, otherwise: int) -> int:
    (size,) = as_ints("fft", (otherwise if n is None or n == -1 else n,))
    if size < 1:
        raise RuntimeError(f"Invalid number of data points ({size}) specified")
    return size


def _resized(input: Tensor, sizes: Sequence[int], dims: Sequence[int]) -> Tensor:
    """Cut off, or followed by zeros, to the given sizes."""
    widths = [(0, 0)] * input.ndim
    for size, dim in zip(sizes, dims, strict=True):
        if input.shape[dim] > size:
            input = shape.narrow(input, dim, 0, size)
        widths[dim] = (0, size - input.shape[dim])
    return VOCABULARY.constant_pad(input, widths, 0.0) if any(high for _, high in widths) else input


def _sizes_and_dims(
    name: str, input: Tensor, s: Sequence[int] | None, dim: Sequence[int] | int | None
) -> tuple[list[int | None], list[int]]:
    """The wanted size, or None, of each dimension to transform."""
    s = [s] if isinstance(s, int) else s
    if dim is None:
        count = input.ndim if s is None else len(s)
        if count > input.ndim:
            raise RuntimeError(
                f"{name}: Got shape with {count} values but input tensor only has {input.ndim} dimensions."
            )
        dims = list(range(input.ndim - count, input.ndim))
    else:
        asked = [dim] if isinstance(dim, int) else list(dim)
        if asked and not input.ndim:
            raise IndexError(f"{name}: Dimension specified as {asked[0]} but tensor has no dimensions")
        dims = [wrap_dim(name, d, input.ndim) for d in asked]
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"{name}: FFT dims must be unique, got {dim}")
        if s is not None and len(s) != len(dims):
            raise RuntimeError(
                f"{name}: When given, dim and shape arguments must have the same length, got {list(s)} and {list(dims)}"
            )
    sizes: list[int | None] = (
        [None] * len(dims) if s is None else [None if n == -1 else n for n in as_ints(name, s)]
    )
    return sizes, dims


# -- the three forms of each transform --------------------------------------------------------------------


def _declared(name: str, doc: str, function: Callable[P, Tensor]) -> TakesOut[P, Tensor]:
    function.__name__ = function.__qualname__ = f"fft_{name}"
    function.__doc__ = doc
    return tensor_function(method=False, out=True)(function)


def _along_one(name: str, transform: Callable[..., Tensor], forward: bool, doc: str):
    def function(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
        if n == -1:  # which stands for the length of the input among several sizes only
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
        return transform(name, input, None if n is None else (n,), (dim,), norm, forward)

    return _declared(name, doc, function)


def _over_all(name: str, transform: Callable[..., Tensor], forward: bool, doc: str):
    def function(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
        return transform(name, input, s, dim, norm, forward)

    return _declared(name, doc, function)


def _over_two(name: str, transform: Callable[..., Tensor], forward: bool, doc: str):
    def function(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
        return transform(name, input, s, dim, norm, forward)

    return _declared(name, doc, function)


# -- complex to complex ----------------------------------------------------------------------------------


def _c2c(name: str, input: Tensor, s: Any, dim: Any, norm: str | None, forward: bool) -> Tensor:
    input = _complex(name, input)
    sizes, dims = _sizes_and_dims(name, input, s, dim)
    if not dims:
        return input
    input = _resized(input, [_length(n, input.shape[d]) for n, d in zip(sizes, dims, strict=True)], dims)
    return fft_c2c(input, tuple(dims), _norm(norm), forward)


fft_fft = _along_one(
    "fft",
    _c2c,
    True,
    "The transform along `dim`, cut or padded with zeros to length `n`; norm: 'forward', 'backward' or 'ortho'.",
)
fft_ifft = _along_one("ifft", _c2c, False, "The inverse of `fft`.")
fft_fftn = _over_all(
    "fftn", _c2c, True, "The transform along several dimensions, all by default, resized to `s`."
)
fft_ifftn = _over_all("ifftn", _c2c, False, "The inverse of `fftn`.")
fft_fft2 = _over_two("fft2", _c2c, True, "The transform along two dimensions, the last by default.")
fft_ifft2 = _over_two("ifft2", _c2c, False, "The inverse of `fft2`.")


# -- real to complex ---------------------------------------------------------------------------------------


def _r2c(name: str, input: Tensor, s: Any, dim: Any, norm: str | None, forward: bool) -> Tensor:
    """The last of the dimensions is the real one; in the forward direction it comes first."""
    input = _real(name, input)
    sizes, dims = _sizes_and_dims(name, input, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    input = _resized(input, [_length(n, input.shape[d]) for n, d in zip(sizes, dims, strict=True)], dims)
    out = fft_r2c(input, dims[-1], _norm(norm), forward)
    return fft_c2c(out, tuple(dims[:-1]), _norm(norm), forward) if dims[:-1] else out


fft_rfft = _along_one(
    "rfft", _r2c, True, "The transform of a real tensor: n // 2 + 1 elements, which determine the rest."
)
fft_ihfft = _along_one("ihfft", _r2c, False, "The inverse of `hfft`.")
fft_rfftn = _over_all(
    "rfftn",
    _r2c,
    True,
    "The transform of a real tensor along several dimensions; the last has n // 2 + 1 elements.",
)
fft_ihfftn = _over_all("ihfftn", _r2c, False, "The inverse of `hfftn`.")
fft_rfft2 = _over_two("rfft2", _r2c, True, "`rfftn` along two dimensions.")
fft_ihfft2 = _over_two("ihfft2", _r2c, False, "`ihfftn` along two dimensions.")


# -- complex to real ---------------------------------------------------------------------------------------


def _c2r(name: str, input: Tensor, s: Any, dim: Any, norm: str | None, forward: bool) -> Tensor:
    input = _complex(name, input)
    sizes, dims = _sizes_and_dims(name, input, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    last = dims[-1]
    n = _length(sizes[-1], 2 * (input.shape[last] - 1))
    wanted = [_length(size, input.shape[d]) for size, d in zip(sizes[:-1], dims[:-1], strict=True)]
    input = _resized(input, [*wanted, n // 2 + 1], dims)
    if dims[:-1]:
        input = fft_c2c(input, tuple(dims[:-1]), _norm(norm), forward)
    return fft_c2r(input, last, n, _norm(norm), forward)


fft_irfft = _along_one(
    "irfft", _c2r, False, "The inverse of `rfft`; `n` is the length of the result, 2 * (size - 1) by default."
)
fft_hfft = _along_one(
    "hfft", _c2r, True, "The real transform of a signal that mirrors itself in time, given by its first half."
)
fft_irfftn = _over_all("irfftn", _c2r, False, "The inverse of `rfftn`.")
fft_hfftn = _over_all("hfftn", _c2r, True, "`hfft` along the last, `fft` along the other dimensions.")
fft_irfft2 = _over_two("irfft2", _c2r, False, "`irfftn` along two dimensions.")
fft_hfft2 = _over_two("hfft2", _c2r, True, "`hfftn` along two dimensions.")


# -- frequencies and shifts ----------------------------------------------------------------------------------


def _frequencies(cycles: np.ndarray, span: float, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    target = dtypes.get_default_dtype() if dtype is None else dtypes.of(dtype)
    if target.category < 2:
        raise RuntimeError(f"fftfreq requires a floating point or complex dtype, got {target.name}")
    with np.errstate(divide="ignore", invalid="ignore"):  # of samples without a distance
        values = cycles * (np.float64(1.0) / span)
    return finish(values.astype(target.numpy), device, requires_grad)


def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of `fft`'s elements for `n` samples that lie `d` apart: 0, positive, then negative ones."""
    return _frequencies(np.fft.ifftshift(np.arange(n) - n // 2), n * d, dtype, device, requires_grad)


def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of `rfft`'s elements for `n` samples that lie `d` apart."""
    return _frequencies(np.arange(n // 2 + 1), n * d, dtype, device, requires_grad)


def _shifted(name: str, input: Tensor, dim: Any, half: Any) -> Tensor:
    dims = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    dims = [wrap_dim(name, d, input.ndim) for d in dims]
    return VOCABULARY.roll(input, tuple(half(input.shape[d]) for d in dims), tuple(dims)) if dims else input


@tensor_function(method=False)
def fft_fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """Negative frequencies before the positive ones, along `dim` (all by default)."""
    return _shifted("fftshift", input, dim, lambda n: n // 2)


@tensor_function(method=False)
def fft_ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", input, dim, lambda n: (n + 1) // 2)
