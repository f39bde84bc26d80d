"""3x3 convolution with stride 1 by Winograd's minimal filtering F(2x2, 3x3), float32 and float64.

Lavin and Gray, "Fast algorithms for convolutional neural networks" (2015): a 2x2 tile of the
output is A^T [(G w G^T) * (B^T x B)] A, where x is a 4x4 tile of the input. So a convolution is
16 matrix products, one per element of the 4x4 tiles, with 4/9 of the multiplications. All three
convolutions of a training step are made of the same maps:

    output    x -> B^T x B ; times G w G^T        ; m -> A^T m A
    input     the same with the weight turned by 180 degrees and its channels exchanged
    weight    x -> B^T x B ; g -> A g A^T ; their product, summed over tiles ; u -> G^T u G

Tiles are laid out (channel, element of the tile, tile) in groups of at most `_TILES`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .float_product import matmul
from .matmul import by_blas
from .threads import PER_ELEMENT, in_parts, threads
from .vectormath import kernel

Array = np.ndarray
Pair = tuple[int, int]

_TILES = 256
# Tiles that win against moving the weight: 20 to 45, for weights in the cache and outside.
_ENOUGH = 40
# A row of tiles is worked on in whole vectors, so a few numbers past its end are computed too: room for them.
_VECTOR = 8
_PITCH = _TILES + _VECTOR
_WINDOW = 2 * _PITCH + 2
# Constant pitches and unsigned indices are what LLVM needs to see that the streams do not overlap.
u = np.uint64
_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
# vec(G w G^T) = (G kron G) vec(w) for a 3x3 weight w.
_EXPAND = np.kron(_G, _G)


def pays(channels: int, outputs: int, shape: tuple[int, ...]) -> bool:
    """True when the 16 matrix products are large enough to win over one, and a row of tiles fits a group.

    shape: (N, H, W) of the result. What a tile saves must make up for a weight that is 16 / 9 as large, written and read again.
    """
    n, height, width = shape
    tiles = n * -(-height // 2) * -(-width // 2)
    return min(channels, outputs) >= 16 and tiles >= _ENOUGH and width <= 2 * _TILES


def convolve(input: Array, weight: Array, bias: Array | None, padding: Pair) -> Array:
    """Cross-correlation of input (N, C, H, W) with weight (O, C, 3, 3) plus bias (O,)."""
    return _convolve(input, _expand(weight, _EXPAND), bias, padding)


def convolve_input(g: Array, weight: Array, padding: Pair) -> Array:
    """The gradient for the input, from g (N, O, *): a convolution of g; each padding is at most 2."""
    turned = _expand(weight, _EXPAND[:, ::-1]).swapaxes(1, 2)
    return _convolve(g, turned, None, (2 - padding[0], 2 - padding[1]))


def convolve_weight(g: Array, input: Array, padding: Pair) -> Array:
    """The gradient for the weight (O, C, 3, 3), from g (N, O, *) and input (N, C, H, W)."""
    channels, outputs = input.shape[1], g.shape[1]
    size = -(-g.shape[2] // 2), -(-g.shape[3] // 2)
    groups = _groups(g.shape)
    team = min(threads(), len(groups))
    x_tiles = np.empty((team, channels, 16, _PITCH), input.dtype)
    g_tiles = np.empty((team, outputs, 16, _PITCH), input.dtype)
    total = np.zeros((16, outputs, channels), input.dtype)
    for start in range(0, len(groups), team):
        now = groups[start : start + team]

        def turn(begin: int, end: int, now: Any = now) -> None:
            for k in range(begin, end):
                _input_to_tiles(input, padding, size, *now[k], x_tiles[k].reshape(channels, -1))
                _gradient_to_tiles(g, *now[k], g_tiles[k].reshape(outputs, -1))

        def add(begin: int, end: int, now: Any = now) -> None:
            for k, (_, rows) in enumerate(now):  # in one order, however many threads there are
                tiles = rows * size[1]
                left = g_tiles[k, :, begin:end, :tiles].swapaxes(0, 1)
                total[begin:end] += matmul(left, x_tiles[k, :, begin:end, :tiles].transpose(1, 2, 0))

        elements = len(now) * 16 * _TILES
        in_parts(turn, len(now), elements * (channels + outputs))
        in_parts(add, 16, elements * channels * outputs // PER_ELEMENT, blas=True)
    shrink = np.ascontiguousarray(_EXPAND.T, dtype=input.dtype)
    flat = by_blas(shrink, total.reshape(16, outputs * channels))
    return np.ascontiguousarray(flat.T).reshape(outputs, channels, 3, 3)


def _convolve(input: Array, weight: Array, bias: Array | None, padding: Pair) -> Array:
    """weight (16, O, C): the transformed weights."""
    n, channels, height, width = input.shape
    outputs = weight.shape[1]
    shape = (n, outputs, height + 2 * padding[0] - 2, width + 2 * padding[1] - 2)
    down, across = -(-shape[2] // 2), -(-shape[3] // 2)
    out = np.empty(shape, input.dtype)
    offset = np.zeros(outputs, input.dtype) if bias is None else np.ascontiguousarray(bias)
    groups = _groups(shape)

    def part(begin: int, end: int) -> None:
        x_tiles = np.empty((channels, 16, _PITCH), input.dtype)
        o_tiles = np.empty((outputs, 16, _PITCH), input.dtype)
        for first, rows in groups[begin:end]:
            tiles = rows * across
            _input_to_tiles(input, padding, (down, across), first, rows, x_tiles.reshape(channels, -1))
            matmul(weight, x_tiles[:, :, :tiles].swapaxes(0, 1), o_tiles[:, :, :tiles].swapaxes(0, 1))
            _tiles_to_output(o_tiles.reshape(outputs, -1), offset, first, rows, out)

    if len(groups) >= 2 * threads():
        elements = len(groups) * 16 * _TILES * channels * outputs // PER_ELEMENT
        in_parts(part, len(groups), elements, blas=True)
    else:  # each product is shared
        part(0, len(groups))
    return out


def _groups(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """(first row of tiles, number of rows): the rows of all images in groups of at most `_TILES` tiles."""
    total = shape[0] * -(-shape[2] // 2)
    step = _TILES // -(-shape[3] // 2)
    return [(first, min(step, total - first)) for first in range(0, total, step)]


def _expand(weight: Array, matrix: Array) -> Array:
    """The weight (O, C, 3, 3) as 4x4 tiles (16, O, C)."""
    flat = weight.reshape(weight.shape[0] * weight.shape[1], 9)
    return by_blas(np.ascontiguousarray(matrix, weight.dtype), flat.T).reshape(16, *weight.shape[:2])


@kernel
def _input_to_tiles(x, padding, size, first, rows, tiles):
    """Tiles of x (N, C, H, W), `size` of them in an image, from row of tiles `first` on, to tiles (C, *)."""
    _, channels, height, width = x.shape
    down, across = size
    number = x.dtype.type
    w = np.zeros(4 * _WINDOW, x.dtype)
    vectors = (across + _VECTOR - 1) // _VECTOR * _VECTOR
    for c in range(channels):
        sink = tiles[c]
        image, row = divmod(first, down)
        for done in range(rows):
            # Two of the four lines that a row of tiles needs are the last two of the row above.
            for i in range(0 if done == 0 or row == 0 else 2, 4):
                y = 2 * row - padding[0] + i
                line = w[(2 * row + i) % 4 * _WINDOW + padding[1] :]
                if 0 <= y < height:
                    source = x[image, c, y]
                    for j in range(width):
                        line[j] = source[j]
                else:
                    for j in range(width):
                        line[j] = number(0)
            upper, lower = u(2 * row % 4 * _WINDOW), u((2 * row + 2) % 4 * _WINDOW)
            at = u(done * across)
            for t in range(vectors):
                # The four rows of B^T x ...
                j, k = upper + u(2) * u(t), lower + u(2) * u(t)
                p, q, r, s = w[j], w[j + u(_WINDOW)], w[k], w[k + u(_WINDOW)]
                a0, b0, c0, d0 = p - r, q + r, r - q, q - s
                p, q, r, s = w[j + u(1)], w[j + u(_WINDOW + 1)], w[k + u(1)], w[k + u(_WINDOW + 1)]
                a1, b1, c1, d1 = p - r, q + r, r - q, q - s
                p, q, r, s = w[j + u(2)], w[j + u(_WINDOW + 2)], w[k + u(2)], w[k + u(_WINDOW + 2)]
                a2, b2, c2, d2 = p - r, q + r, r - q, q - s
                p, q, r, s = w[j + u(3)], w[j + u(_WINDOW + 3)], w[k + u(3)], w[k + u(_WINDOW + 3)]
                a3, b3, c3, d3 = p - r, q + r, r - q, q - s
                # ... and then of B^T x B.
                k = at + u(t)
                sink[k] = a0 - a2
                sink[k + u(_PITCH)] = a1 + a2
                sink[k + u(2 * _PITCH)] = a2 - a1
                sink[k + u(3 * _PITCH)] = a1 - a3
                sink[k + u(4 * _PITCH)] = b0 - b2
                sink[k + u(5 * _PITCH)] = b1 + b2
                sink[k + u(6 * _PITCH)] = b2 - b1
                sink[k + u(7 * _PITCH)] = b1 - b3
                sink[k + u(8 * _PITCH)] = c0 - c2
                sink[k + u(9 * _PITCH)] = c1 + c2
                sink[k + u(10 * _PITCH)] = c2 - c1
                sink[k + u(11 * _PITCH)] = c1 - c3
                sink[k + u(12 * _PITCH)] = d0 - d2
                sink[k + u(13 * _PITCH)] = d1 + d2
                sink[k + u(14 * _PITCH)] = d2 - d1
                sink[k + u(15 * _PITCH)] = d1 - d3
            row += 1
            if row == down:
                image, row = image + 1, 0


@kernel
def _tiles_to_output(tiles, bias, first, rows, out):
    """The products in tiles (O, *), plus the bias, to the rows of out (N, O, H, W) that they belong to."""
    _, outputs, height, width = out.shape
    down, across = (height + 1) // 2, (width + 1) // 2
    lines = np.empty(2 * _WINDOW, out.dtype)
    vectors = (across + _VECTOR - 1) // _VECTOR * _VECTOR
    for o in range(outputs):
        m = tiles[o]
        offset = bias[o]
        image, row = divmod(first, down)
        for done in range(rows):
            at = u(done * across)
            for t in range(vectors):
                # The two rows of A^T m ...
                k = at + u(t)
                p, q = m[k + u(4 * _PITCH)], m[k + u(8 * _PITCH)]
                a0, b0 = m[k] + p + q, p - q - m[k + u(12 * _PITCH)]
                p, q = m[k + u(5 * _PITCH)], m[k + u(9 * _PITCH)]
                a1, b1 = m[k + u(_PITCH)] + p + q, p - q - m[k + u(13 * _PITCH)]
                p, q = m[k + u(6 * _PITCH)], m[k + u(10 * _PITCH)]
                a2, b2 = m[k + u(2 * _PITCH)] + p + q, p - q - m[k + u(14 * _PITCH)]
                p, q = m[k + u(7 * _PITCH)], m[k + u(11 * _PITCH)]
                a3, b3 = m[k + u(3 * _PITCH)] + p + q, p - q - m[k + u(15 * _PITCH)]
                # ... and then of A^T m A.
                j = u(2) * u(t)
                lines[j] = a0 + a1 + a2 + offset
                lines[j + u(1)] = a1 - a2 - a3 + offset
                lines[j + u(_WINDOW)] = b0 + b1 + b2 + offset
                lines[j + u(_WINDOW + 1)] = b1 - b2 - b3 + offset
            for i in range(2):
                if 2 * row + i < height:
                    source, sink = lines[i * _WINDOW :], out[image, o, 2 * row + i]
                    for j in range(width):
                        sink[j] = source[j]
            row += 1
            if row == down:
                image, row = image + 1, 0


@kernel
def _gradient_to_tiles(g, first, rows, tiles):
    """2x2 tiles of g (N, O, H, W), expanded to 4x4, to tiles (O, *)."""
    _, outputs, height, width = g.shape
    number = g.dtype.type
    down, across = (height + 1) // 2, (width + 1) // 2
    w = np.zeros(2 * _WINDOW, g.dtype)
    vectors = (across + _VECTOR - 1) // _VECTOR * _VECTOR
    for o in range(outputs):
        sink = tiles[o]
        image, row = divmod(first, down)
        for done in range(rows):
            for i in range(2):
                line = w[i * _WINDOW :]
                if 2 * row + i < height:
                    source = g[image, o, 2 * row + i]
                    for j in range(width):
                        line[j] = source[j]
                else:
                    for j in range(width):
                        line[j] = number(0)
            at = u(done * across)
            for t in range(vectors):
                # The rows of A g are p, p + q, p - q and -q; each is then multiplied by A^T.
                j = u(2) * u(t)
                p0, p1, q0, q1 = w[j], w[j + u(1)], w[j + u(_WINDOW)], w[j + u(_WINDOW + 1)]
                s0, s1, d0, d1 = p0 + q0, p1 + q1, p0 - q0, p1 - q1
                k = at + u(t)
                sink[k] = p0
                sink[k + u(_PITCH)] = p0 + p1
                sink[k + u(2 * _PITCH)] = p0 - p1
                sink[k + u(3 * _PITCH)] = -p1
                sink[k + u(4 * _PITCH)] = s0
                sink[k + u(5 * _PITCH)] = s0 + s1
                sink[k + u(6 * _PITCH)] = s0 - s1
                sink[k + u(7 * _PITCH)] = -s1
                sink[k + u(8 * _PITCH)] = d0
                sink[k + u(9 * _PITCH)] = d0 + d1
                sink[k + u(10 * _PITCH)] = d0 - d1
                sink[k + u(11 * _PITCH)] = -d1
                sink[k + u(12 * _PITCH)] = -q0
                sink[k + u(13 * _PITCH)] = -q0 - q1
                sink[k + u(14 * _PITCH)] = q1 - q0
                sink[k + u(15 * _PITCH)] = q1
            row += 1
            if row == down:
                image, row = image + 1, 0
