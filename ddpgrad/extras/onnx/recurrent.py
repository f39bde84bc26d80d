"""ONNX export of recurrent layers: one LSTM, GRU or RNN node for each layer and direction.

The op here takes the products with the input ready made; ONNX makes them itself. So the node takes what
went into the linear layer before, and that layer's weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import ExportError
from .graph import Graph, converts
from .trace import Step

# The places of PyTorch's gates in ONNX's order: (in, out, forget, cell), (update, reset, new).
_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


@converts("lstm_sequence")
def _lstm(g: Graph, s: Step) -> str:
    states = _node(g, s, "LSTM", [s.h0, s.c0])
    return g.node("Concat", [g.node("Unsqueeze", [name, g.ints([0])]) for name in states], axis=0)


@converts("gru_sequence")
def _gru(g: Graph, s: Step) -> str:
    return _node(g, s, "GRU", [s.h0], linear_before_reset=1)[0]


@converts("rnn_sequence")
def _rnn(g: Graph, s: Step) -> str:
    kind = "Relu" if s.relu else "Tanh"
    return _node(g, s, "RNN", [s.h0], activations=[kind])[0]


def _node(g: Graph, s: Step, kind: str, initial: list[Any], **attributes: Any) -> list[str]:
    """The states (rows, H) after each row: hidden, and for an LSTM of cells that run once the cell's."""
    sizes = s.batch_sizes
    packed = len(set(sizes)) != 1
    linear = g.producers.get(s.input.name)
    if linear is None or linear.op != "linear":
        raise ExportError(
            f"onnx.export: {s.op} whose gates do not come from a linear layer has no form in ONNX here"
        )
    hidden = s.weight.shape[1]
    steps, batch = len(sizes), sizes[0]
    dtype = s.weight.dtype
    width = linear.weight.shape[1]
    shape = g.ints([1, -1, width]) if packed else g.shape([steps, batch, width], one_free=True)
    rows = g.node("Reshape", [g.of(linear.input), shape])
    weights = [_gates(g, kind, linear.weight, hidden), _gates(g, kind, s.weight, hidden)]
    count = len(_ORDER[kind]) * hidden
    none = np.zeros(count, dtype)
    of_input = none if linear.bias is None else linear.bias
    of_state = none if s.arguments.get("bias") is None else s.bias
    bias = g.node("Concat", [_gates(g, kind, of_input, hidden), _gates(g, kind, of_state, hidden)], axis=1)
    start = [g.node("Unsqueeze", [g.of(state), g.ints([0])]) for state in initial]
    direction = "reverse" if s.reverse else "forward"
    inputs = [rows, *weights, bias, "", *start]
    if packed:
        return _step_by_step(g, kind, inputs, sizes, hidden, s.reverse, attributes)
    if kind != "LSTM":
        out = g.node(kind, inputs, outputs=2, hidden_size=hidden, direction=direction, **attributes)
        return [_rows(g, out[0], hidden)]
    # ONNX gives the cell's state after the last step only, so each step is a node of its own.
    return _unrolled(g, rows, inputs, steps, hidden, s.reverse)


def _unrolled(g: Graph, rows: str, inputs: list[str], steps: int, hidden: int, reverse: bool) -> list[str]:
    state = inputs[5:7]
    hiddens: dict[int, str] = {}
    cells: dict[int, str] = {}
    for t in reversed(range(steps)) if reverse else range(steps):
        row = rows if steps == 1 else g.node("Slice", [rows, g.ints([t]), g.ints([t + 1]), g.ints([0])])
        out = g.node("LSTM", [row, *inputs[1:5], *state], outputs=3, hidden_size=hidden)
        state = out[1:]
        hiddens[t], cells[t] = state
    joined = []
    for found in (hiddens, cells):
        whole = g.node("Concat", [found[t] for t in range(steps)], axis=0)
        joined.append(g.node("Reshape", [whole, g.ints([-1, hidden])]))
    return joined


def _step_by_step(
    g: Graph, kind: str, inputs: list[str], sizes: Any, hidden: int, reverse: bool, attributes: dict[str, Any]
) -> list[str]:
    """Packed sequences, longest first: a node for each step, of as many rows as sequences reach it."""

    def part(name: str, start: int, end: int) -> str:
        return g.node("Slice", [name, g.ints([start]), g.ints([end]), g.ints([1])])

    ends = np.cumsum(sizes)
    initial = inputs[5:]
    state, running = initial, 0
    found: dict[int, list[str]] = {}
    for t in reversed(range(len(sizes))) if reverse else range(len(sizes)):
        size = int(sizes[t])
        if size > running:  # sequences that begin here, which backwards are those that end here
            new = [part(name, running, size) for name in initial]
            state = (
                [g.node("Concat", pair, axis=1) for pair in zip(state, new, strict=True)] if running else new
            )
        elif size < running:
            state = [part(name, 0, size) for name in state]
        running = size
        row = part(inputs[0], int(ends[t]) - size, int(ends[t]))
        out = g.node(
            kind, [row, *inputs[1:5], *state], outputs=1 + len(state), hidden_size=hidden, **attributes
        )
        state = found[t] = out[1:]
    each = zip(*(found[t] for t in range(len(sizes))), strict=True)
    return [_rows(g, g.node("Concat", list(names), axis=1), hidden) for names in each]


def _rows(g: Graph, name: str, hidden: int) -> str:
    return g.node("Reshape", [name, g.ints([-1, hidden])])


def _gates(g: Graph, kind: str, value: Any, hidden: int) -> str:
    """A weight or bias with ONNX's order of gates, and its dimension of directions in front."""
    places = np.concatenate([np.arange(hidden) + place * hidden for place in _ORDER[kind]])
    ordered = g.node("Gather", [g.of(value), g.constant(places, np.int64)], axis=0)
    return g.node("Unsqueeze", [ordered, g.ints([0])])
