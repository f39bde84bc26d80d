"""Recurrent layers without their state: what RNN, LSTM and GRU compute, and PyTorch's functions of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...backend.dtype import promote_types
from ...backend.sequence import BatchSizes, last_rows, steps
from ...core.overrides import overridable
from ...core.tensor import Tensor
from ...ops.creation.factories import from_numpy
from ...ops.elementwise.unary import sigmoid, tanh
from ...ops.indexing.gather import index_select
from ...ops.layers.dropout import dropout as dropped
from ...ops.layers.recurrent import gru_sequence, lstm_sequence, rnn_sequence
from ...ops.linalg.matrix import linear
from ...ops.shape.shape import reshape
from ...ops.shape.stacking import cat, stack

States = tuple[Tensor, ...]


def run_layers(
    mode: str,
    rows: Tensor,
    hx: States,
    weights: Sequence[Sequence[Any]],
    sizes: BatchSizes,
    directions: int,
    dropout: float = 0.0,
) -> tuple[Tensor, list[Tensor]]:
    """(rows of the last layer's states, last states of all layers), from rows as `ops/layers/recurrent.py` has them.

    hx: initial states (layers * directions, batch, size) of each kind. weights: those of each layer and direction; five, or
    three without biases, are an LSTM's with a projection. dropout: the probability of dropping what goes to the next layer.
    """
    last: list[States] = []
    for first in range(0, len(weights), directions):
        outs = []
        for i in range(first, first + directions):
            initial, reverse = tuple(state[i] for state in hx), i > first
            if len(weights[i]) % 2:
                out, ended = _projected_lstm(rows, initial, weights[i], sizes, reverse)
            else:
                states = run_cells(mode, rows, initial, weights[i], sizes, reverse)
                out, ended = states[0], tuple(_last(state, sizes, reverse) for state in states)
            outs.append(out)
            last.append(ended)
        rows = outs[0] if len(outs) == 1 else cat(outs, 1)
        if dropout and first + directions < len(weights):
            rows = dropped(rows, dropout, True)
    return rows, [stack(states) for states in zip(*last, strict=True)]


def run_cells(
    mode: str, rows: Tensor, hx: States, weights: Sequence[Any], sizes: BatchSizes, reverse: bool = False
) -> States:
    """The states (rows, H) of each kind of a recurrence; weights: weight_ih, weight_hh, and the biases if there are."""
    weight_ih, weight_hh, *biases = weights
    bias_ih, bias_hh = biases or (None, None)
    if mode == "GRU":
        gates, state, bias = linear(rows, weight_ih, bias_ih), hx[0], bias_hh
        if not gates.dtype is state.dtype is weight_hh.dtype:  # under autocast
            wider = promote_types(gates.dtype, state.dtype)
            gates, state, weight_hh = (part.to(wider) for part in (gates, state, weight_hh))
            bias = None if bias is None else bias.to(wider)
        return (gru_sequence(gates, state, weight_hh, bias, sizes, reverse),)
    # Both biases are added to the same sum.
    bias = None if bias_ih is None else bias_ih + bias_hh
    gates = linear(rows, weight_ih, bias)
    if mode == "LSTM":
        states = lstm_sequence(gates, hx[0], hx[1], weight_hh, sizes, reverse)
        return states[0], states[1]
    return (rnn_sequence(gates, hx[0], weight_hh, sizes, reverse, mode == "RNN_RELU"),)


def _last(states: Tensor, sizes: BatchSizes, reverse: bool) -> Tensor:
    """The last state (batch, H) of each sequence."""
    batch = sizes[0]
    if reverse:
        return states[:batch]
    if sizes[-1] == batch:
        return states[states.shape[0] - batch :]
    return index_select(states, 0, from_numpy(last_rows(sizes, reverse)).to(states.device))


def _projected_lstm(
    rows: Tensor, hx: States, weights: Sequence[Any], sizes: BatchSizes, reverse: bool
) -> tuple[Tensor, States]:
    """An LSTM whose hidden state is projected to fewer dimensions (https://arxiv.org/abs/1402.1128), step by step."""
    weight_ih, weight_hh, *biases, weight_hr = weights
    gates = linear(rows, weight_ih, biases[0] + biases[1] if biases else None)
    h, c = hx
    outs = []
    for start, size in steps(sizes, reverse):
        i, f, n, o = (gates[start : start + size] + linear(h[:size], weight_hh)).chunk(4, 1)
        cell = sigmoid(f) * c[:size] + sigmoid(i) * tanh(n)
        outs.append(linear(sigmoid(o) * tanh(cell), weight_hr))
        h, c = cat([outs[-1], h[size:]]), cat([cell, c[size:]])
    return cat(outs[::-1] if reverse else outs), (h, c)


# -- functions of `torch` --


def _both(name: str, hx: Sequence[Tensor]) -> States:
    """The hidden state and the cell of an LSTM."""
    if len(hx) != 2:
        raise RuntimeError(f"{name} expects two hidden states, got {len(hx)}")
    return tuple(hx)


def _stepped(mode: str, input: Tensor, hx: States, *weights: Tensor | None) -> States:
    """The states after one step."""
    return run_cells(mode, input, hx, [w for w in weights if w is not None], (input.shape[0],))


def _cell(mode: str, name: str) -> Callable[..., Tensor]:
    def cell(
        input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        return _stepped(mode, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]

    cell.__name__ = cell.__qualname__ = name
    cell.__doc__ = (
        "The state (N, H) after one step from `hx` (N, H): input (N, I), weights (gates * H, I or H)."
    )
    return overridable(cell)


gru_cell, rnn_tanh_cell, rnn_relu_cell = (
    _cell(mode, f"{mode.lower()}_cell") for mode in ("GRU", "RNN_TANH", "RNN_RELU")
)


@overridable
def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The states (hidden, cell), each (N, H), after one step from the two of `hx`: input (N, I), weights (4 H, I or H)."""
    hidden, cell = _stepped("LSTM", input, _both("lstm_cell", hx), w_ih, w_hh, b_ih, b_hh)
    return hidden, cell


def _over_padded(
    mode: str, input: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    x = input.transpose(0, 1) if batch_first else input
    length, batch, width = x.shape
    rows, *last = _over_packed(
        mode, reshape(x, (length * batch, width)), (batch,) * length, hx, params, has_biases, num_layers, dropout, train,
        bidirectional,
    )  # fmt: skip
    out = reshape(rows, (length, batch, rows.shape[1]))
    return out.transpose(0, 1) if batch_first else out, *last


def _over_packed(
    mode: str, data: Tensor, batch_sizes: Any, hx: Any, params: Sequence[Tensor], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    states = _both("lstm", hx) if mode == "LSTM" else (hx,)
    directions = 2 if bidirectional else 1
    each, rest = divmod(len(params), num_layers * directions)
    if rest or each not in ((4, 5) if has_biases else (2, 3)):
        raise RuntimeError(
            f"{mode.lower()}(): expected {4 if has_biases else 2} tensors in params for each of {num_layers} layers and "
            f"{directions} directions, got {len(params)}"
        )
    weights = [params[i : i + each] for i in range(0, len(params), each)]
    sizes = tuple(batch_sizes.tolist()) if isinstance(batch_sizes, Tensor) else batch_sizes
    rows, last = run_layers(mode, data, states, weights, sizes, directions, dropout if train else 0.0)
    return rows, *last


def _recurrence(mode: str, name: str) -> Callable[..., tuple[Tensor, ...]]:
    def recurrence(input: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        packed = "batch_sizes" in kwargs or (len(args) > 2 and isinstance(args[2], (list, tuple)))
        return (_over_packed if packed else _over_padded)(mode, input, *args, **kwargs)

    recurrence.__name__ = recurrence.__qualname__ = name
    recurrence.__doc__ = """(states of the last layer, last states of each kind), with PyTorch's two lists of arguments.

    (input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first), or for the rows of a
    `PackedSequence` (data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional). params: the
    weights and biases of each layer and direction; hx: a state (layers * directions, N, H), or two of an LSTM.
    """
    return overridable(recurrence)


lstm, gru, rnn_tanh, rnn_relu = (
    _recurrence(mode, mode.lower()) for mode in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU")
)
