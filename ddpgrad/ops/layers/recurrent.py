"""Recurrent layers over whole sequences, one op for each kind of cell.

The rows of all time steps lie one after the other, as in a `PackedSequence`: `batch_sizes[t]`
rows of step t, never more than in the step before. Row b of a step continues row b of the
step before (of the one after, with `reverse`), or of the initial state. `input` holds what
the inputs contribute to the gates, which one large product has computed beforehand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend.sequence import BatchSizes, previous_rows, steps
from ...core.tensor import Tensor
from ..dispatch.declare import composite, op


def _before(F: Any, initial: Any, states: Any, batch_sizes: BatchSizes, reverse: bool) -> Any:
    """The state before each row."""
    rows = F.asarray(previous_rows(batch_sizes, reverse))
    return F.index_select(F.cat([initial, states], 0), 0, rows)


def _renewed(F: Any, fresh: Any, state: Any, size: int) -> Any:
    """`state` with its first `size` rows replaced."""
    return fresh if size == state.shape[0] else F.cat([fresh, state[size:]], 0)


def _collect(F: Any, parts: list[Any], reverse: bool) -> Any:
    """The rows of all steps, given in the order of computation, in the order of time."""
    return F.cat(parts[::-1] if reverse else parts, 0)


def _split(x: Any, count: int) -> list[Any]:
    width = x.shape[1] // count
    return [x[:, i * width : (i + 1) * width] for i in range(count)]


# Two sequences, of 3 and of 2 steps.
_SIZES = (2, 2, 1)


def _samples(gates: int, *more: tuple[int, ...], options: tuple[Any, ...] = ()) -> Any:
    """Rows of gates (5, gates * 3), then arrays of the shapes `more`, in both directions."""

    def samples(rng: Any) -> Any:
        for reverse in (False, True):
            arrays = [rng.standard_normal(shape) * 0.7 for shape in ((5, 3 * gates), *more)]
            yield (*arrays, _SIZES, reverse, *options), {}

    return samples


def _np_sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _np_run(cell: Any, x: Any, *initial: Any, reverse: bool) -> Any:
    """Reference: each sequence by itself, one row after the other."""
    out = [np.empty((5, 3)) for _ in initial]
    for b, rows in enumerate(([0, 2, 4], [1, 3])):
        state = tuple(s[b] for s in initial)
        for row in rows[::-1] if reverse else rows:
            state = cell(x[row], *state)
            for o, s in zip(out, state, strict=True):
                o[row] = s
    return out


def _np_lstm(x: Any, h0: Any, c0: Any, weight: Any, sizes: Any, reverse: bool) -> Any:
    def cell(gates: Any, h: Any, c: Any) -> Any:
        i, f, g, o = np.split(gates + weight @ h, 4)
        c = _np_sigmoid(f) * c + _np_sigmoid(i) * np.tanh(g)
        return _np_sigmoid(o) * np.tanh(c), c

    return np.stack(_np_run(cell, x, h0, c0, reverse=reverse))


@op(
    joint=lambda F, g, needs, input, h0, c0, weight, batch_sizes, reverse, out, gates: F.lstm_backward(
        g, input, h0, c0, weight, batch_sizes, reverse, out, gates
    ),
    extras=("gates",),
    samples=_samples(4, (2, 3), (2, 3), (12, 3)),
    reference=_np_lstm,
    method=False,
)
def lstm_sequence(
    F: Any,
    input: Tensor,
    h0: Tensor,
    c0: Tensor,
    weight: Tensor,
    batch_sizes: BatchSizes,
    reverse: bool = False,
) -> Tensor:
    """The hidden and the cell states (2, rows, H) of an LSTM.

    input (rows, 4 H): the gates in, forget, cell, out; h0, c0 (batch, H); weight (4 H, H).
    """
    h, c = h0, c0
    weight = F.transpose(weight, 0, 1)
    hidden, cells = [], []
    for start, size in steps(batch_sizes, reverse):
        pre = input[start : start + size] + F.matmul(h[:size], weight)
        i, f, g, o = _split(pre, 4)
        fresh = F.sigmoid(f) * c[:size] + F.sigmoid(i) * F.tanh(g)
        cells.append(fresh)
        hidden.append(F.sigmoid(o) * F.tanh(fresh))
        h, c = _renewed(F, hidden[-1], h, size), _renewed(F, fresh, c, size)
    states = [_collect(F, hidden, reverse), _collect(F, cells, reverse)]
    return F.stack(states, 0), None  # type: ignore[return-value]


@composite
def lstm_backward(
    F: Any,
    g: Any,
    input: Any,
    h0: Any,
    c0: Any,
    weight: Any,
    batch_sizes: BatchSizes,
    reverse: bool,
    out: Any,
    gates: Any,
) -> tuple[Any, Any, Any, Any]:
    """The gradients of `lstm_sequence`; works out the gates again, so that it has a gradient itself."""
    h_before = _before(F, h0, out[0], batch_sizes, reverse)
    c_before = _before(F, c0, out[1], batch_sizes, reverse)
    pre = input + F.matmul(h_before, F.transpose(weight, 0, 1))
    i, f, n, o = _split(pre, 4)
    i, f, n, o = F.sigmoid(i), F.sigmoid(f), F.tanh(n), F.sigmoid(o)
    t = F.tanh(out[1])
    # What a gradient of the hidden and of the cell state does to each gate.
    to_cell = o * (1 - t * t)
    by_out = t * o * (1 - o)
    by_cell = F.cat([n * i * (1 - i), c_before * f * (1 - f), i * (1 - n * n)], 1)
    grad_h, grad_c = F.full_like(h0, 0), F.full_like(c0, 0)
    parts = []
    for start, size in list(steps(batch_sizes, reverse))[::-1]:
        rows = slice(start, start + size)
        of_h = g[0][rows] + grad_h[:size]
        of_c = g[1][rows] + grad_c[:size] + of_h * to_cell[rows]
        part = F.cat([F.cat([of_c, of_c, of_c], 1) * by_cell[rows], of_h * by_out[rows]], 1)
        grad_h = _renewed(F, F.matmul(part, weight), grad_h, size)
        grad_c = _renewed(F, of_c * f[rows], grad_c, size)
        parts.append(part)
    grad = _collect(F, parts, not reverse)
    return grad, grad_h, grad_c, F.matmul(F.transpose(grad, 0, 1), h_before)


def _np_gru(x: Any, h0: Any, weight: Any, bias: Any, sizes: Any, reverse: bool) -> Any:
    def cell(gates: Any, h: Any) -> Any:
        xr, xz, xn = np.split(gates, 3)
        hr, hz, hn = np.split(weight @ h + bias, 3)
        r, z = _np_sigmoid(xr + hr), _np_sigmoid(xz + hz)
        n = np.tanh(xn + r * hn)
        return ((1 - z) * n + z * h,)

    return _np_run(cell, x, h0, reverse=reverse)[0]


@op(
    joint=lambda F, g, needs, input, h0, weight, bias, batch_sizes, reverse, out, gates: F.gru_backward(
        g, input, h0, weight, bias, batch_sizes, reverse, out, gates
    ),
    extras=("gates",),
    samples=_samples(3, (2, 3), (9, 3), (9,)),
    reference=_np_gru,
    method=False,
)
def gru_sequence(
    F: Any,
    input: Tensor,
    h0: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    batch_sizes: BatchSizes,
    reverse: bool = False,
) -> Tensor:
    """The hidden states (rows, H) of a GRU.

    input (rows, 3 H): the gates reset, update, new; h0 (batch, H); weight (3 H, H); bias (3 H,)
    of what the state contributes.
    """
    h = h0
    weight = F.transpose(weight, 0, 1)
    hidden = []
    for start, size in steps(batch_sizes, reverse):
        xr, xz, xn = _split(input[start : start + size], 3)
        of_h = F.matmul(h[:size], weight)
        hr, hz, hn = _split(of_h if bias is None else of_h + bias, 3)
        z = F.sigmoid(xz + hz)
        n = F.tanh(xn + F.sigmoid(xr + hr) * hn)
        hidden.append(n + z * (h[:size] - n))
        h = _renewed(F, hidden[-1], h, size)
    return _collect(F, hidden, reverse), None  # type: ignore[return-value]


@composite
def gru_backward(
    F: Any,
    g: Any,
    input: Any,
    h0: Any,
    weight: Any,
    bias: Any,
    batch_sizes: BatchSizes,
    reverse: bool,
    out: Any,
    gates: Any,
) -> tuple[Any, Any, Any, Any]:
    """The gradients of `gru_sequence`; works out the gates again, so that it has a gradient itself."""
    before = _before(F, h0, out, batch_sizes, reverse)
    of_h = F.matmul(before, F.transpose(weight, 0, 1))
    hr, hz, hn = _split(of_h if bias is None else of_h + bias, 3)
    xr, xz, xn = _split(input, 3)
    r, z = F.sigmoid(xr + hr), F.sigmoid(xz + hz)
    n = F.tanh(xn + r * hn)
    # What a gradient of the hidden state does to each gate.
    by_new = (1 - z) * (1 - n * n)
    by_update = (before - n) * z * (1 - z)
    by_reset = by_new * hn * r * (1 - r)
    by_input = F.cat([by_reset, by_update, by_new], 1)
    by_state = F.cat([by_reset, by_update, by_new * r], 1)
    grad_h = F.full_like(h0, 0)
    parts = []
    for start, size in list(steps(batch_sizes, reverse))[::-1]:
        rows = slice(start, start + size)
        part = g[rows] + grad_h[:size]
        through = F.matmul(F.cat([part, part, part], 1) * by_state[rows], weight)
        grad_h = _renewed(F, part * z[rows] + through, grad_h, size)
        parts.append(part)
    total = _collect(F, parts, not reverse)
    total = F.cat([total, total, total], 1)
    of_state = total * by_state
    grad_weight = F.matmul(F.transpose(of_state, 0, 1), before)
    return total * by_input, grad_h, grad_weight, None if bias is None else F.sum(of_state, 0)


def _np_rnn(x: Any, h0: Any, weight: Any, sizes: Any, reverse: bool, relu: bool) -> Any:
    act = (lambda v: np.maximum(v, 0)) if relu else np.tanh
    return _np_run(lambda pre, h: (act(pre + weight @ h),), x, h0, reverse=reverse)[0]


def _rnn_samples(rng: Any) -> Any:
    for relu in (False, True):
        yield from _samples(1, (2, 3), (3, 3), options=(relu,))(rng)


@op(
    joint=lambda F, g, needs, input, h0, weight, batch_sizes, reverse, relu, out: F.rnn_backward(
        g, input, h0, weight, batch_sizes, reverse, relu, out
    ),
    samples=_rnn_samples,
    reference=_np_rnn,
    method=False,
)
def rnn_sequence(
    F: Any,
    input: Tensor,
    h0: Tensor,
    weight: Tensor,
    batch_sizes: BatchSizes,
    reverse: bool = False,
    relu: bool = False,
) -> Tensor:
    """The hidden states (rows, H) of a plain recurrent layer: tanh, or relu, of input (rows, H) + weight @ state."""
    h = h0
    weight = F.transpose(weight, 0, 1)
    hidden = []
    for start, size in steps(batch_sizes, reverse):
        pre = input[start : start + size] + F.matmul(h[:size], weight)
        hidden.append(F.maximum(pre, 0) if relu else F.tanh(pre))
        h = _renewed(F, hidden[-1], h, size)
    return _collect(F, hidden, reverse)


@composite
def rnn_backward(
    F: Any,
    g: Any,
    input: Any,
    h0: Any,
    weight: Any,
    batch_sizes: BatchSizes,
    reverse: bool,
    relu: bool,
    out: Any,
) -> tuple[Any, Any, Any]:
    """The gradients of `rnn_sequence`."""
    before = _before(F, h0, out, batch_sizes, reverse)
    slope = F.cast(out > 0, out.dtype) if relu else 1 - out * out
    grad_h = F.full_like(h0, 0)
    parts = []
    for start, size in list(steps(batch_sizes, reverse))[::-1]:
        rows = slice(start, start + size)
        parts.append((g[rows] + grad_h[:size]) * slope[rows])
        grad_h = _renewed(F, F.matmul(parts[-1], weight), grad_h, size)
    grad = _collect(F, parts, not reverse)
    return grad, grad_h, F.matmul(F.transpose(grad, 0, 1), before)
