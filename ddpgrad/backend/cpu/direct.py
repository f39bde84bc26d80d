"""Convolution and its two gradients by products with patches that are read where they are (`patch_product.py`): float32.

A convolution of any number of dimensions, stride, dilation and number of groups is one product, and so is the gradient of
its weight. The gradient of its input is a convolution for each of the places of the input that are `stride` apart. No array may be empty.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from . import patch_product, patches
from .patch_product import AVAILABLE, COLUMNS, ROWS, SUMMED, in_panels
from .patches import Options, Plan
from .threads import PER_ELEMENT, in_parts

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]

# Positions that repay the packing of a weight which is not in the cache.
_FEW_POSITIONS, _LARGE_WEIGHT = 64, 1 << 16
# How many times the multiplications are worth not folding columns.
_WASTE = 2


def pays(g_shape: Ints, weight_shape: Ints) -> bool:
    """Whether patches for a result (N, O, *) are enough to repay the packing of the weight, on a processor with wide vectors."""
    if not AVAILABLE:
        return False
    positions = g_shape[0] * math.prod(g_shape[2:])
    return positions >= _FEW_POSITIONS or math.prod(weight_shape) < _LARGE_WEIGHT


def pays_input(g_shape: Ints, weight_shape: Ints, input_shape: Ints, options: Options) -> bool:
    """Whether the gradient of the input is done sooner than by columns: many zeros are not multiplied, nor columns that none needs."""
    if not pays(g_shape, weight_shape):
        return False
    plan = patches.backward(g_shape, weight_shape, input_shape, options)
    done = int((plan.parts[:, 4] * plan.parts[:, 5]).sum()) * in_panels(weight_shape[1])
    needed = math.prod(weight_shape) // options.groups * math.prod(g_shape[2:])
    return done <= _WASTE * needed


def convolve(input: Array, weight: Array, bias: Array | None, shape: Ints, options: Options) -> Array:
    """Cross-correlation of input (N, C, D, H, W) with weight (O, C/groups, *kernel) plus bias (O,), of that shape."""
    plan = patches.forward(input.shape, weight.shape, shape, options)
    rows = patches.plain(weight).reshape(options.groups, len(weight) // options.groups, -1)
    panels = np.empty(options.groups * rows.shape[2] * in_panels(rows.shape[1]), np.float32)
    patch_product.pack()(rows, panels)
    out = np.empty(shape, np.float32)
    _correlate(input, plan, panels, bias, options.groups, out)
    return out


def convolve_input(g: Array, weight: Array, input_shape: Ints, options: Options) -> Array:
    """The gradient of `convolve` for its input, from g (N, O, *)."""
    outputs, channels = weight.shape[:2]
    groups = options.groups
    plan = patches.backward(g.shape, weight.shape, input_shape, options)
    by_taps = patches.plain(weight).reshape(groups, outputs // groups, channels, -1)
    across = groups * in_panels(channels)
    panels = np.empty(across * int(plan.parts[:, 5].sum()), np.float32)
    for elements, part in zip(plan.elements, plan.parts, strict=True):
        first, length = int(part[3]), int(part[5])
        patch_product.pack_turned()(by_taps, elements, panels[across * first : across * (first + length)])
    # Places that no element of the kernel meets have no gradient.
    covered = int(plan.parts[:, 4].sum()) == math.prod(input_shape[2:])
    out = np.empty(input_shape, np.float32) if covered else np.zeros(input_shape, np.float32)
    _correlate(g, plan, panels, None, groups, out)
    return out


def convolve_weight(g: Array, input: Array, weight_shape: Ints, options: Options) -> Array:
    """The gradient of `convolve` for its weight, from g (N, O, *)."""
    outputs, channels = weight_shape[:2]
    groups = options.groups
    plan = patches.forward(input.shape, weight_shape, g.shape, options, SUMMED)
    length, positions = channels * math.prod(weight_shape[2:]), math.prod(g.shape[2:])
    total = np.zeros((groups, -(-length // ROWS) * ROWS, in_panels(outputs // groups)), np.float32)
    # Threads may not share a tile: it ends with a group's channels, or with eight of them.
    unit = channels if groups > 1 else ROWS
    by_position = patches.plain(g).reshape(len(g), outputs, positions)
    work = partial(_part_of_weight, patches.plain(input), plan, by_position, groups, unit, total)
    units = -(-input.shape[1] // unit)
    patch_product.correlate_weight()
    in_parts(work, units, g.size * length // PER_ELEMENT)
    out = np.empty((groups, outputs // groups, length), np.float32)
    patch_product.unpack()(total, out)
    return out.reshape(weight_shape)


def _part_of_weight(
    input: Array, plan: Plan, g: Array, groups: int, unit: int, total: Array, start: int, end: int
) -> None:
    low, high = start * unit, min(end * unit, input.shape[1])
    # Pages of channels that others have are not touched.
    buffer = np.zeros((plan.images, input.shape[1], plan.pitch), np.float32)
    elements = len(plan.elements[0])
    patch_product.correlate_weight()(
        input, plan.before, plan.padded, buffer, plan.rows, plan.taps, g.shape[2], elements, g, groups, low, high, total
    )  # fmt: skip


def _correlate(x: Array, plan: Plan, panels: Array, bias: Array | None, groups: int, out: Array) -> None:
    if not panels.size:
        return
    offset = np.empty(0, np.float32) if bias is None else patches.plain(bias)
    planes = out.reshape(*out.shape[:2], -1)
    work = partial(_part, patches.plain(x), plan, panels, offset, groups, planes)
    elements = len(x) * panels.size * int(plan.parts[:, 4].max()) // PER_ELEMENT
    patch_product.correlate()
    if len(x) > 1:
        in_parts(lambda first, end: work((first, end), (0, 1), 1), len(x), elements)
    else:
        slices = max(1, planes.shape[2] // (4 * COLUMNS))
        in_parts(lambda low, high: work((0, 1), (low, high), slices), slices, elements)


def _part(
    x: Array,
    plan: Plan,
    panels: Array,
    bias: Array,
    groups: int,
    out: Array,
    images: tuple[int, int],
    within: tuple[int, int],
    slices: int,
) -> None:
    buffer = np.zeros((plan.images, x.shape[1], plan.pitch), np.float32)
    tables = (plan.rows, plan.taps, plan.places, plan.parts)
    patch_product.correlate()(
        x, plan.before, plan.padded, buffer, *tables, panels, bias, groups, out, *images, *within, slices
    )
