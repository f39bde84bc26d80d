"""Adaptive and fractional pooling over one to three dimensions: the number of windows is given.

`input` is (N, C, *size) or (C, *size), and *size has as many dimensions as the function's name says.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ... import Tensor, clone, expand, gather, index_select, mean, rand, reshape, unsqueeze
from ...backend.dtype import int64
from ...backend.registry import backend_for
from ...backend.windows import Ints, per_dimension
from ...core.modes import exporting
from ...core.tensor import wrap
from ...ops.dispatch.node import guarded
from ...ops.elementwise.conversion import to, wide
from ...ops.layers import pool, resample
from ...ops.layers.places import take_places
from .by_dims import SIZES, named, with_indices


def _adaptive_sizes(name: str, dims: int, input: Tensor, output_size: Any) -> tuple[Ints, Ints]:
    """(lengths of the image, lengths wanted)."""
    if input.ndim not in (dims + 1, dims + 2):
        few = dims > 1 and input.ndim <= dims
        raise (ValueError if few else RuntimeError)(
            f"{name}{dims}d(): {f'Input dimension should be at least {dims + 1}: ' * few}Expected {dims + 1}D or {dims + 2}D tensor, but got {list(input.shape)}"
        )
    counted = dims if name == "adaptive_avg_pool" and dims < 3 else dims + 1  # there may be no channels
    if 0 in input.shape[-counted:]:
        raise RuntimeError(
            f"{name}{dims}d(): Expected input to have non-zero size for non-batch dimensions, but input has sizes "
            f"{list(input.shape)}"
        )
    image = tuple(input.shape[-dims:])
    wanted = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * dims
    if len(wanted) != dims:
        want = "'output_size' should contain one int" if dims == 1 else f"output_size must be {dims} numbers"
        raise RuntimeError(f"{name}{dims}d(): {want}, got {output_size}")
    sizes = tuple(n if size is None else int(size) for n, size in zip(image, wanted, strict=True))
    if min(sizes) < 0:
        raise RuntimeError(
            f"{name}{dims}d(): Trying to create tensor with negative dimension: elements of output_size must be greater than or equal to 0, got {output_size}"
        )
    return image, sizes


def _adaptive_windows(n: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the `size` windows over a length `n` begin, and where they end."""
    i = np.arange(size)
    return i * n // max(size, 1), -(-(i + 1) * n // max(size, 1))


@functools.lru_cache(maxsize=64)
def _adaptive_bands(n: int, size: int) -> resample.Bands:
    """The means of these windows."""
    start, end = _adaptive_windows(n, size)
    return resample.windows(start, end, end - start, n)


def _adaptive_mean(dims: int):
    @named(
        f"adaptive_avg_pool{dims}d",
        f"Means over windows that divide ({SIZES[dims]}) as evenly as they can into `output_size`; None keeps a length.",
    )
    def function(input: Tensor, output_size: Any) -> Tensor:
        image, sizes = _adaptive_sizes("adaptive_avg_pool", dims, input, output_size)
        if sizes == (1,) * dims:
            return mean(input, tuple(range(-dims, 0)), True)
        out = wide(input) if dims > 1 else input
        for i, (n, size) in enumerate(zip(image, sizes, strict=True)):
            if n != size:
                out = resample.resample(out, input.ndim - dims + i, _adaptive_bands(n, size))
        return guarded(clone(out) if out is input else to(out, input.dtype), input)

    return function


adaptive_avg_pool1d = _adaptive_mean(1)
adaptive_avg_pool2d = _adaptive_mean(2)
adaptive_avg_pool3d = _adaptive_mean(3)


def _largest(input: Tensor, places: np.ndarray, sizes: Ints) -> tuple[Tensor, Tensor]:
    """The largest elements of windows, and where: both (*, *sizes).

    places: (planes or 1, windows, taps), the places in the flattened image that each window meets.
    """
    dims = len(sizes)
    lead, image = tuple(input.shape[:-dims]), tuple(input.shape[-dims:])
    flat = reshape(input, (math.prod(lead), 1, math.prod(image)))
    if exporting.get():
        met = reshape(index_select(flat, 2, wrap(places.reshape(-1))), (math.prod(lead), *places.shape[1:]))
        values, nth = met.max(2)
        index = gather(expand(wrap(places), *met.shape), 2, unsqueeze(nth, 2))
        return reshape(values, (*lead, *sizes)), reshape(index, (*lead, *sizes))
    array = flat._array
    index = wrap(backend_for(array).largest_of_places(array[:, 0], places)[1])
    # One Tensor for both, so that backward finds out when a user has changed the places.
    return reshape(take_places(flat, index), (*lead, *sizes)), reshape(index, (*lead, *sizes))


def _adaptive_max(dims: int, where: str = ""):
    @named(
        f"adaptive_max_pool{dims}d",
        f"""The largest elements of windows that divide ({SIZES[dims]}) as evenly as they can; None keeps a length.

    With `return_indices`, (values, their places{where}).
    """,
    )
    def function(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        image, sizes = _adaptive_sizes("adaptive_max_pool", dims, input, output_size)
        if 0 in sizes:
            shape = (*input.shape[:-dims], *sizes)
            nothing: Any = (input.new_empty(shape), input.new_empty(shape, dtype=int64))
            return nothing if return_indices else nothing[0]
        if all(size and n % size == 0 for n, size in zip(image, sizes, strict=True)):
            kernel = tuple(n // size for n, size in zip(image, sizes, strict=True))
            out = pool.max_pool(input, kernel, kernel, (0,) * dims, (1,) * dims)
            return out if return_indices else out[0]
        reach = []
        for n, size in zip(image, sizes, strict=True):
            start, end = _adaptive_windows(n, size)
            met = start[:, None] + np.arange((end - start).max(initial=0))
            reach.append(np.minimum(met, end[:, None] - 1))
        out = _largest(input, pool.flat_places(reach, image)[None], sizes)
        return out if return_indices else out[0]

    return function


adaptive_max_pool1d = _adaptive_max(1)
adaptive_max_pool2d = _adaptive_max(2, " in the flattened image")
adaptive_max_pool3d = _adaptive_max(3, " in the flattened volume")


adaptive_max_pool1d_with_indices = with_indices(adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = with_indices(adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = with_indices(adaptive_max_pool3d)


def _random_starts(samples: np.ndarray, n: int, size: int, kernel: int) -> np.ndarray:
    """Where `size` windows over a length `n` begin, for each sample: (samples, size). The last touches the end."""
    starts = np.full((len(samples), size), n - kernel, np.int64)
    if size > 1:
        step = samples.dtype.type((n - kernel) / (size - 1))
        i = np.arange(size - 1).astype(samples.dtype)
        shifted = ((i + samples[:, None]) * step).astype(np.int64)
        starts[:, :-1] = shifted - (samples[:, None] * step).astype(np.int64)
    return starts


def _fractional(dims: int, what: str):
    name = f"fractional_max_pool{dims}d"

    @named(
        name,
        f"""The largest elements of windows at pseudo-random places; with `return_indices`, (values, their places).

    output_size: how many windows; or output_ratio, their number relative to the size of the {what}.
    Source: https://arxiv.org/abs/1412.6071
    """,
    )
    def function(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        if input.ndim not in (dims + 1, dims + 2):
            raise RuntimeError(
                f"{name}(): Expected {dims + 1}D or {dims + 2}D tensor, but got {list(input.shape)}"
            )
        image, kernel = tuple(input.shape[-dims:]), per_dimension(kernel_size, dims, "kernel_size")
        if output_size is None:
            ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * dims
            sizes = tuple(int(n * ratio) for n, ratio in zip(image, ratios, strict=True))
        else:
            sizes = per_dimension(output_size, dims, "output_size")
        if min(*kernel, *sizes) <= 0:
            raise RuntimeError(
                f"{name}(): windows and their number must be greater than zero, got kernel_size {kernel} and output_size {sizes}"
            )
        for n, size, k in zip(image, sizes, kernel, strict=True):
            if size + k - 1 > n:
                raise RuntimeError(
                    f"{name}(): {size} windows of size {k} do not fit into a length of {n}: too large relative to input"
                )
        lead = tuple(input.shape[:-dims])
        samples, one_each = _random_samples, (1, *lead, dims)[-3:]
        if samples is None:
            samples = rand(one_each, dtype=input.dtype, device=input.device)
        elif (
            samples.dtype is not input.dtype
            or samples.shape[1:] != one_each[1:]
            or samples.shape[0] < one_each[0]
        ):
            raise RuntimeError(
                f"{name}(): expected random samples {list(one_each)} of {input.dtype.name}, one of each dimension for each "
                f"plane, but got {list(samples.shape)} of {samples.dtype.name}"
            )
        host = np.zeros(samples.shape) if samples.is_meta else Tensor.numpy(samples, force=True)
        planes = math.prod(lead)
        drawn = host.reshape(-1, dims)[:planes]
        # PyTorch's samples belong to (x, y) for images, but to (depth, height, width) for volumes.
        columns = range(dims) if dims == 3 else (1, 0)
        places = np.zeros((planes, 1, 1), np.int64)
        for i, (n, size, k) in enumerate(zip(image, sizes, kernel, strict=True)):
            met = _random_starts(drawn[:, columns[i]], n, size, k)[:, :, None] + np.arange(k)
            places = places[:, :, None, :, None] * n + met[:, None, :, None, :]
            places = places.reshape(planes, math.prod(sizes[: i + 1]), math.prod(kernel[: i + 1]))
        out = _largest(input, places, sizes)
        return out if return_indices else out[0]

    return function


fractional_max_pool2d = _fractional(2, "image")
fractional_max_pool3d = _fractional(3, "volume")
