"""Regions of interest: parts of feature maps, averaged or reduced into a grid of bins.

rois: (K, 5), the number of the image and x1, y1, x2, y2 in units of 1 / spatial_scale pixels. An average over a bin is
separable: a bin of the grid is `rows @ image @ columns.T`, where `rows` (bins, H) has what each row of the image counts in each
row of bins, and `columns` likewise. Aligned regions, pooled ones by average, and those of position-sensitive channels differ
in these weights only (https://arxiv.org/abs/1703.06870, https://arxiv.org/abs/1605.06409).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ... import Tensor, from_numpy

Weights = Callable[[float, float, int, int], np.ndarray]
"""(start and end of a region in pixels, bins, pixels) -> (bins, pixels)."""


def _sampled(
    start: float, end: float, bins: int, size: int, ratio: int, aligned: bool, least: float
) -> np.ndarray:
    """Bilinear samples at the centres of `ratio` parts of each bin, or of one part for each pixel of it."""
    offset = 0.5 if aligned else 0.0
    start, length = start - offset, max(end - start, least)
    count = ratio if ratio > 0 else int(np.ceil(length / bins))
    weights = np.zeros((bins, size))
    if count <= 0:
        return weights
    at = start + (np.arange(bins * count) + 0.5) * (length / bins / count)
    kept = np.flatnonzero((at >= -1.0) & (at <= size))
    at = np.clip(at[kept], 0.0, size - 1)
    low = np.minimum(at.astype(int), size - 1)
    high = np.minimum(low + 1, size - 1)
    np.add.at(weights, (kept // count, low), (1 - (at - low)) / count)
    np.add.at(weights, (kept // count, high), (at - low) / count)
    return weights


def _bins(start: Any, end: Any, bins: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The first pixel of each bin, and the one after its last; a region has a whole number of pixels, at least one."""
    first, length = _rounded(start), max(_rounded(end) - _rounded(start), 1)
    edges = np.arange(bins + 1) * (start.dtype.type(length) / start.dtype.type(bins))
    starts, ends = np.floor(edges[:-1]) + first, np.ceil(edges[1:]) + first
    return np.clip(starts, 0, size).astype(int), np.clip(ends, 0, size).astype(int)


def _rounded(value: float) -> int:
    """To the nearest whole number, halves away from zero."""
    return int(np.trunc(value + np.copysign(0.5, value)))


def _whole(start: Any, end: Any, bins: int, size: int, last_pixel: bool = True) -> np.ndarray:
    """The mean of the pixels of each bin; nothing where it has none. The last pixel of a row counts only if `last_pixel`."""
    weights = np.zeros((bins, size))
    for row, first, last in zip(weights, *_bins(start, end, bins, size - (not last_pixel)), strict=True):
        row[first:last] = 1 / max(last - first, 1)
    return weights


def _scaled(rois: np.ndarray, scale: float) -> np.ndarray:
    """Boxes in pixels, computed in their own precision, as bins that end between two pixels depend on it."""
    return np.concatenate([rois[:, :1], rois[:, 1:] * rois.dtype.type(scale)], 1)


def _each(
    rois: np.ndarray, scale: float, grid: tuple[int, int], size: tuple[int, ...], weights: Weights
) -> Iterator[tuple[int, np.ndarray, np.ndarray, tuple[slice, slice]]]:
    """For each region its image, the weights of rows and of columns, and the part of the image where they are."""
    for image, x1, y1, x2, y2 in _scaled(rois, scale):
        parts = [
            weights(a, b, n, m) for a, b, n, m in ((y1, y2, grid[0], size[0]), (x1, x2, grid[1], size[1]))
        ]
        used = [np.flatnonzero(part.any(0)) for part in parts]
        spans = [slice(u[0], u[-1] + 1) if len(u) else slice(0, 0) for u in used]
        rows, columns = (part[:, span] for part, span in zip(parts, spans, strict=True))
        yield int(image), rows, columns, (spans[0], spans[1])


def _average(input: Tensor, rois: Tensor, scale: float, height: int, width: int, weights: Weights) -> Tensor:
    """(K, C, height, width) from (N, C, H, W)."""
    images = _checked(input, rois)
    out = np.zeros((len(rois), images.shape[1], height, width), images.dtype)
    found = _each(_host(rois), scale, (height, width), images.shape[2:], weights)
    for region, (image, rows, columns, (ys, xs)) in zip(out, found, strict=True):
        region[...] = rows @ images[image, :, ys, xs] @ columns.T
    return from_numpy(out).to(input.device)


def _average_backward(
    grad: Tensor, rois: Tensor, scale: float, shape: tuple[int, ...], weights: Weights
) -> Tensor:
    grads = _host(grad)
    out = np.zeros(shape, grads.dtype)
    found = _each(_host(rois), scale, grads.shape[2:], shape[2:], weights)
    for region, (image, rows, columns, (ys, xs)) in zip(grads, found, strict=True):
        out[image, :, ys, xs] += rows.T @ region @ columns
    return from_numpy(out).to(grad.device)


def _host(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _checked(input: Tensor, rois: Tensor) -> np.ndarray:
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise RuntimeError(f"rois must have shape as Tensor[K, 5], got {list(rois.shape)}")
    if input.dtype is not rois.dtype:
        raise RuntimeError(
            f"Expected tensor for input to have the same type as tensor for rois; but type {input.dtype!r} does not "
            f"equal {rois.dtype!r}"
        )
    return _host(input)


def _aligned(sampling_ratio: int, aligned: bool) -> Weights:
    return partial(_sampled, ratio=sampling_ratio, aligned=aligned, least=-np.inf if aligned else 1.0)


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Averages of bilinear samples: (K, C, pooled_height, pooled_width)."""
    return _average(
        input, rois, spatial_scale, pooled_height, pooled_width, _aligned(sampling_ratio, aligned)
    )


def roi_align_backward(
    grad: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, *rest: Any
) -> Tensor:
    """The gradient of `roi_align`'s input; rest: its four sizes, sampling_ratio and aligned."""
    return _average_backward(grad, rois, spatial_scale, rest[:4], _aligned(*rest[4:]))


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The largest element of each bin (K, C, pooled_height, pooled_width), and where in its map it lies, -1 for none."""
    images = _checked(input, rois)
    grid, size = (pooled_height, pooled_width), images.shape[2:]
    out = np.zeros((len(rois), images.shape[1], *grid), images.dtype)
    places = np.full(out.shape, -1, np.int32)
    for k, (image, x1, y1, x2, y2) in enumerate(_scaled(_host(rois), spatial_scale)):
        # A region's last pixel belongs to it.
        rows = zip(*_bins(y1, y2 + 1, grid[0], size[0]), strict=True)
        columns = list(zip(*_bins(x1, x2 + 1, grid[1], size[1]), strict=True))
        for i, (top, bottom) in enumerate(rows):
            for j, (left, right) in enumerate(columns):
                if top < bottom and left < right:
                    part = images[int(image), :, top:bottom, left:right].reshape(images.shape[1], -1)
                    best = part.argmax(1)
                    out[k, :, i, j] = part[np.arange(len(part)), best]
                    row, column = np.divmod(best, right - left)
                    places[k, :, i, j] = (top + row) * size[1] + left + column
    return from_numpy(out).to(input.device), from_numpy(places).to(input.device)


def roi_pool_backward(
    grad: Tensor,
    rois: Tensor,
    argmax: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    *shape: int,
) -> Tensor:
    """The gradient of `roi_pool`'s input, of four sizes `shape`."""
    grads, places, images = _host(grad), _host(argmax), _host(rois)[:, 0].astype(int)
    out = np.zeros((shape[0], shape[1], shape[2] * shape[3]), grads.dtype)
    where = np.nonzero(places >= 0)
    np.add.at(out, (images[where[0]], where[1], places[where]), grads[where])
    return from_numpy(out.reshape(shape)).to(grad.device)


def _by_place(values: np.ndarray, height: int, width: int) -> np.ndarray:
    """Position-sensitive channels: of (K, C * height * width, height, width) each bin's own, (K, C, height, width)."""
    bins = values.reshape(len(values), -1, height, width, height, width)
    return np.einsum("kcijij->kcij", bins)


def _channel_mapping(outputs: tuple[int, ...], like: Tensor) -> Tensor:
    """Which channel of the input each bin of the output comes from."""
    mapping = np.arange(np.prod(outputs[1:]), dtype=np.int32).reshape(outputs[1:])
    return from_numpy(np.ascontiguousarray(np.broadcast_to(mapping, outputs))).to(like.device)


def _ps_average(input: Tensor, rois: Tensor, scale: float, height: int, width: int, weights: Weights) -> Any:
    if input.shape[1] % (height * width):
        raise RuntimeError("input channels must be a multiple of pooling height * pooling width")
    all_bins = _host(_average(input, rois, scale, height, width, weights))
    out = np.ascontiguousarray(_by_place(all_bins, height, width))
    return from_numpy(out).to(input.device), _channel_mapping(out.shape, input)


def _ps_average_backward(grad: Tensor, rois: Tensor, scale: float, shape: Any, weights: Weights) -> Tensor:
    grads = _host(grad)
    height, width = grads.shape[2:]
    full = np.zeros((len(grads), shape[1], height, width), grads.dtype)
    _by_place(full, height, width)[...] = grads
    return _average_backward(from_numpy(full).to(grad.device), rois, scale, shape, weights)


def _ps_aligned(sampling_ratio: int) -> Weights:
    return partial(_sampled, ratio=sampling_ratio, aligned=True, least=-np.inf)


def ps_roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> tuple[Tensor, Tensor]:
    """`roi_align` where each bin has channels of its own; also which they are, as PyTorch returns it."""
    return _ps_average(input, rois, spatial_scale, pooled_height, pooled_width, _ps_aligned(sampling_ratio))


def ps_roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    channel_mapping: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    *shape: int,
) -> Tensor:
    """The gradient of `ps_roi_align`'s input, of four sizes `shape`."""
    return _ps_average_backward(grad, rois, spatial_scale, shape, _ps_aligned(sampling_ratio))


def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """Means of the bins' pixels, where each bin has channels of its own; also which they are.

    As in torchvision, the last row and the last column of the image do not count, though they get a gradient.
    """
    weights = partial(_whole, last_pixel=False)
    return _ps_average(input, rois, spatial_scale, pooled_height, pooled_width, weights)


def ps_roi_pool_backward(
    grad: Tensor,
    rois: Tensor,
    channel_mapping: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    *shape: int,
) -> Tensor:
    """The gradient of `ps_roi_pool`'s input, of four sizes `shape`."""
    return _ps_average_backward(grad, rois, spatial_scale, shape, _whole)
