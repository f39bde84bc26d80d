"""Recurrent layers for the CPU, float32 and float64: products with a matrix that is packed once, a compiled kernel for each step's gates.

What the arguments mean is told in `ops/layers/recurrent.py`. Functions return `NotImplemented`,
before anything else, for types they are not written for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..sequence import BatchSizes, previous_rows, steps
from .float_product import TILE, by, is_packed
from .matmul import dot
from .threads import PER_ELEMENT, in_parts
from .vectormath import compiled_for, exp, kernel

Array = np.ndarray[Any, Any]
Steps = list[tuple[slice, slice]]
"""Of each step its rows among those of all steps, and their sequences."""


def lstm_sequence(
    input: Array, h0: Array, c0: Array, weight: Array, batch_sizes: BatchSizes, reverse: bool
) -> tuple[Array, Array]:
    """(states (2, rows, H), gates (rows, 4 H) after their sigmoid or tanh)."""
    if not compiled_for(input, h0, c0, weight):
        return NotImplemented
    gates = np.array(input, order="C")
    states = np.empty((2, len(gates), h0.shape[1]), input.dtype)
    h, c = np.array(h0, order="C"), np.array(c0, order="C")
    products = np.empty((len(h0), gates.shape[1]), input.dtype)
    multiply = by(weight.T, len(batch_sizes))

    def part(order: Steps) -> None:
        for rows, own in order:
            multiply(h[own], products[own])
            _lstm_step(gates[rows], products[own], h[own], c[own], states[0, rows], states[1, rows])

    _in_batches(part, batch_sizes, reverse, weight.T)
    return states, gates


def lstm_backward(
    g: Array,
    input: Array,
    h0: Array,
    c0: Array,
    weight: Array,
    batch_sizes: BatchSizes,
    reverse: bool,
    out: Array,
    gates: Array,
) -> tuple[Array, Array, Array, Array]:
    """The gradients of `lstm_sequence` for input, h0, c0 and weight."""
    if gates is None or not compiled_for(g, out, gates, weight):
        return NotImplemented
    g = np.ascontiguousarray(g)
    before = previous_rows(batch_sizes, reverse)
    h_before = np.concatenate([h0, out[0]])[before]
    c_before = np.concatenate([c0, out[1]])[before]
    grad = np.empty_like(gates)
    grad_h, grad_c = np.zeros_like(h0, order="C"), np.zeros_like(c0, order="C")
    multiply = by(weight, len(batch_sizes))

    def part(order: Steps) -> None:
        for rows, own in order[::-1]:
            of_states, cells = (g[0, rows], g[1, rows]), (out[1, rows], c_before[rows])
            _lstm_step_backward(*of_states, gates[rows], *cells, grad_h[own], grad_c[own], grad[rows])
            multiply(grad[rows], grad_h[own])

    _in_batches(part, batch_sizes, reverse, weight)
    return grad, grad_h, grad_c, dot(grad.T, h_before)


def gru_sequence(
    input: Array, h0: Array, weight: Array, bias: Array | None, batch_sizes: BatchSizes, reverse: bool
) -> tuple[Array, Array]:
    """(states (rows, H), (rows, 4 H): the gates reset, update, new, and what the state contributes to new)."""
    if not compiled_for(input, h0, weight) or (bias is not None and bias.dtype != input.dtype):
        return NotImplemented
    input = np.ascontiguousarray(input)
    width = h0.shape[1]
    gates = np.empty((len(input), 4 * width), input.dtype)
    states = np.empty((len(input), width), input.dtype)
    multiply = by(weight.T, len(batch_sizes))
    h = np.array(h0, order="C")
    products = np.empty((len(h0), 3 * width), input.dtype)

    def part(order: Steps) -> None:
        for rows, own in order:
            multiply(h[own], products[own])
            if bias is not None:
                products[own] += bias
            _gru_step(input[rows], products[own], h[own], gates[rows], states[rows])

    _in_batches(part, batch_sizes, reverse, weight.T)
    return states, gates


def gru_backward(
    g: Array,
    input: Array,
    h0: Array,
    weight: Array,
    bias: Array | None,
    batch_sizes: BatchSizes,
    reverse: bool,
    out: Array,
    gates: Array,
) -> tuple[Array, Array, Array, Array | None]:
    """The gradients of `gru_sequence` for input, h0, weight and bias."""
    if gates is None or not compiled_for(g, out, gates, weight):
        return NotImplemented
    g = np.ascontiguousarray(g)
    before = np.concatenate([h0, out])[previous_rows(batch_sizes, reverse)]
    grad = np.empty((len(out), 3 * out.shape[1]), out.dtype)
    of_state = np.empty_like(grad)
    grad_h = np.zeros_like(h0, order="C")
    through = np.empty_like(grad_h)
    multiply = by(weight, len(batch_sizes))

    def part(order: Steps) -> None:
        for rows, own in order[::-1]:
            _gru_step_backward(g[rows], gates[rows], before[rows], grad_h[own], grad[rows], of_state[rows])
            multiply(of_state[rows], through[own])
            grad_h[own] += through[own]

    _in_batches(part, batch_sizes, reverse, weight)
    return grad, grad_h, dot(of_state.T, before), None if bias is None else of_state.sum(0)


def rnn_sequence(
    input: Array, h0: Array, weight: Array, batch_sizes: BatchSizes, reverse: bool, relu: bool
) -> Array:
    """The states (rows, H)."""
    if not compiled_for(input, h0, weight):
        return NotImplemented
    states = np.array(input, order="C")
    h = np.array(h0, order="C")
    products = np.empty_like(h)
    multiply = by(weight.T, len(batch_sizes))

    def part(order: Steps) -> None:
        for rows, own in order:
            multiply(h[own], products[own])
            _rnn_step(states[rows], products[own], h[own], relu)

    _in_batches(part, batch_sizes, reverse, weight.T)
    return states


def rnn_backward(
    g: Array,
    input: Array,
    h0: Array,
    weight: Array,
    batch_sizes: BatchSizes,
    reverse: bool,
    relu: bool,
    out: Array,
) -> tuple[Array, Array, Array]:
    """The gradients of `rnn_sequence` for input, h0 and weight."""
    if not compiled_for(g, out, weight):
        return NotImplemented
    g = np.ascontiguousarray(g)
    before = np.concatenate([h0, out])[previous_rows(batch_sizes, reverse)]
    grad = np.empty_like(out)
    grad_h = np.zeros_like(h0, order="C")
    multiply = by(weight, len(batch_sizes))

    def part(order: Steps) -> None:
        for rows, own in order[::-1]:
            _rnn_step_backward(g[rows], out[rows], grad_h[own], grad[rows], relu)
            multiply(grad[rows], grad_h[own])

    _in_batches(part, batch_sizes, reverse, weight)
    return grad, grad_h, dot(grad.T, before)


def _in_batches(part: Callable[[Steps], None], batch_sizes: BatchSizes, reverse: bool, weight: Array) -> None:
    """Call `part` for the steps of all sequences, or by threads, for some sequences each.

    A thread gets whole tiles of rows, whose products do not depend on the other rows.
    """
    order = list(steps(batch_sizes, reverse))

    def work(first: int, end: int) -> None:
        low, high = first * TILE, min(end * TILE, batch_sizes[0])
        spans = [(start, low, min(high, size)) for start, size in order if size > low]
        part([(slice(start + a, start + b), slice(a, b)) for start, a, b in spans])

    tiles = -(-batch_sizes[0] // TILE)
    elements = sum(batch_sizes) * weight.size // PER_ELEMENT
    if is_packed(weight) and len(order) > 1:
        in_parts(work, tiles, elements)
    else:  # a product of BLAS depends on all of its rows
        work(0, tiles)


# tanh(x) is 2 sigmoid(2x) - 1 here: exact at both ends, and within a rounding of 1 between. The
# kernels take a row at a time and few arrays in each loop, so that the loops become vector code. They begin at 0 for
# the same reason: Numba takes an index from elsewhere for one that may count from the end, and asks at each element.


@kernel
def _sigmoid_sum_(row, more):
    one = row.dtype.type(1)
    for j in range(len(row)):
        row[j] = one / (one + exp(-(row[j] + more[j])))


@kernel
def _tanh_sum_(row, more):
    one = row.dtype.type(1)
    two = row.dtype.type(2)
    for j in range(len(row)):
        row[j] = two / (one + exp(-two * (row[j] + more[j]))) - one


@kernel
def _hidden(out, gate, cell):
    one = out.dtype.type(1)
    two = out.dtype.type(2)
    for j in range(len(out)):
        out[j] = gate[j] * (two / (one + exp(-two * cell[j])) - one)


@kernel
def _lstm_step(gates, products, h, c, h_out, c_out):
    rows, width = h_out.shape
    for b in range(rows):
        row, product = gates[b], products[b]
        _sigmoid_sum_(row[: 2 * width], product[: 2 * width])
        _tanh_sum_(row[2 * width : 3 * width], product[2 * width : 3 * width])
        _sigmoid_sum_(row[3 * width :], product[3 * width :])
        i, f, n, o = row[:width], row[width : 2 * width], row[2 * width : 3 * width], row[3 * width :]
        cell, hidden = c[b], h_out[b]
        for j in range(width):
            cell[j] = f[j] * cell[j] + i[j] * n[j]
        _hidden(hidden, o, cell)
        for j in range(width):
            c_out[b, j] = cell[j]
            h[b, j] = hidden[j]


@kernel
def _lstm_step_backward(g_h, g_c, gates, cells, c_before, grad_h, grad_c, grad):
    rows, width = g_h.shape
    one = gates.dtype.type(1)
    two = gates.dtype.type(2)
    for b in range(rows):
        row, out = gates[b], grad[b]
        i, f, n, o = row[:width], row[width : 2 * width], row[2 * width : 3 * width], row[3 * width :]
        of_i, of_f = out[:width], out[width : 2 * width]
        of_n, of_o = out[2 * width : 3 * width], out[3 * width :]
        cell, before, of_h, of_c, ahead = cells[b], c_before[b], grad_h[b], grad_c[b], g_h[b]
        for j in range(width):
            of_h[j] += ahead[j]
        for j in range(width):
            t = two / (one + exp(-two * cell[j])) - one
            of_o[j] = of_h[j] * t * o[j] * (one - o[j])
            of_h[j] *= o[j] * (one - t * t)
        ahead = g_c[b]
        for j in range(width):
            of_c[j] += ahead[j] + of_h[j]
        for j in range(width):
            of_i[j] = of_c[j] * n[j] * i[j] * (one - i[j])
        for j in range(width):
            of_n[j] = of_c[j] * i[j] * (one - n[j] * n[j])
        for j in range(width):
            of_f[j] = of_c[j] * before[j] * f[j] * (one - f[j])
        for j in range(width):
            of_c[j] *= f[j]


@kernel
def _gru_step(x, products, h, gates, h_out):
    rows, width = h_out.shape
    one = x.dtype.type(1)
    two = x.dtype.type(2)
    for b in range(rows):
        row, product, gate = x[b], products[b], gates[b]
        for j in range(2 * width):
            gate[j] = row[j]
        _sigmoid_sum_(gate[: 2 * width], product[: 2 * width])
        r, z, n, of_h = gate[:width], gate[width : 2 * width], gate[2 * width : 3 * width], gate[3 * width :]
        inputs, contributed = row[2 * width :], product[2 * width :]
        for j in range(width):
            of_h[j] = contributed[j]
        for j in range(width):
            n[j] = inputs[j] + r[j] * of_h[j]
        for j in range(width):
            n[j] = two / (one + exp(-two * n[j])) - one
        state = h[b]
        for j in range(width):
            state[j] = n[j] + z[j] * (state[j] - n[j])
        for j in range(width):
            h_out[b, j] = state[j]


@kernel
def _gru_step_backward(g, gates, before, grad_h, grad, of_state):
    rows, width = g.shape
    one = g.dtype.type(1)
    for b in range(rows):
        gate, of_x, of_s = gates[b], grad[b], of_state[b]
        r, z, n, of_h = gate[:width], gate[width : 2 * width], gate[2 * width : 3 * width], gate[3 * width :]
        reset, update, new = of_x[:width], of_x[width : 2 * width], of_x[2 * width :]
        total, ahead, state = grad_h[b], g[b], before[b]
        for j in range(width):
            total[j] += ahead[j]
        for j in range(width):
            update[j] = total[j] * (state[j] - n[j]) * z[j] * (one - z[j])
        for j in range(width):
            new[j] = total[j] * (one - z[j]) * (one - n[j] * n[j])
        for j in range(width):
            reset[j] = new[j] * of_h[j] * r[j] * (one - r[j])
        for j in range(2 * width):
            of_s[j] = of_x[j]
        through = of_s[2 * width :]
        for j in range(width):
            through[j] = new[j] * r[j]
        for j in range(width):
            total[j] *= z[j]


@kernel
def _rnn_step(states, products, h, relu):
    rows, width = states.shape
    zero = states.dtype.type(0)
    for b in range(rows):
        row, product = states[b], products[b]
        if relu:
            for j in range(width):
                pre = row[j] + product[j]
                row[j] = zero if pre <= zero else pre
        else:
            _tanh_sum_(row, product)
        for j in range(width):
            h[b, j] = row[j]


@kernel
def _rnn_step_backward(g, out, grad_h, grad, relu):
    rows, width = g.shape
    zero = g.dtype.type(0)
    one = g.dtype.type(1)
    for b in range(rows):
        total, ahead, row, result = grad_h[b], g[b], out[b], grad[b]
        for j in range(width):
            total[j] += ahead[j]
        if relu:
            for j in range(width):
                result[j] = total[j] if row[j] > zero else zero
        else:
            for j in range(width):
                result[j] = total[j] * (one - row[j] * row[j])
