"""One step of a recurrence: the cells of RNN, LSTM and GRU."""

from __future__ import annotations

import math
from typing import Any

from ...core.tensor import Tensor
from ...ops.creation.factories import empty, zeros
from ...ops.dispatch.autocast import casting
from ...ops.elementwise.unary import sigmoid, tanh
from ...ops.linalg.matrix import linear
from .. import init
from ..functional.recurrent import States, run_cells
from ..parameter import Parameter
from .module import Module


class RNNCellBase(Module):
    """One step of a recurrence, on (N, input_size) or (input_size,)."""

    _mode = ""
    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        gates = num_chunks * hidden_size
        self.weight_ih = Parameter(empty(gates, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(empty(gates, hidden_size, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            values = Parameter(empty(gates, device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, values)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew: uniform within 1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self, input: Tensor, hx: Any) -> States:
        """The next state of each kind, from `hx`: a state, a pair of them for an LSTM, or None for zeros."""
        if input.ndim not in (1, 2):
            raise ValueError(f"{self._get_name()}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        x = input if input.ndim == 2 else input.unsqueeze(0)
        if x.shape[1] != self.input_size:
            raise RuntimeError(
                f"{self._get_name()}: input has inconsistent input_size: got {x.shape[1]} expected {self.input_size}"
            )
        if hx is None:
            nothing = zeros((x.shape[0], self.hidden_size), dtype=x.dtype, device=x.device)
            states: States = (nothing,) * (2 if self._mode == "LSTM" else 1)
        else:
            states = tuple(hx) if self._mode == "LSTM" else (hx,)
            for i, state in enumerate(states):
                if state.ndim != input.ndim:
                    which = f"hx[{i}]" if self._mode == "LSTM" else "hidden"
                    fits = state.ndim in (1, 2)
                    dims = f"{input.ndim}D as the input" if fits else "1D or 2D"
                    raise (RuntimeError if fits else ValueError)(
                        f"{self._get_name()}: Expected {which} to be {dims}, got {state.ndim}D instead"
                    )
            states = states if input.ndim == 2 else tuple(state.unsqueeze(0) for state in states)
        for i, state in enumerate(states):
            if state.shape[0] != x.shape[0]:
                raise RuntimeError(
                    f"{self._get_name()}: Input batch size {x.shape[0]} doesn't match hidden{i} batch size {state.shape[0]}"
                )
            if state.dtype is not x.dtype and not casting:
                raise RuntimeError(
                    f"{self._get_name()}: Expected hidden{i} of dtype {x.dtype} as the input, got {state.dtype}"
                )
            if state.shape[1] != self.hidden_size:
                raise RuntimeError(
                    f"{self._get_name()}: hidden{i} has inconsistent hidden_size: got {state.shape[1]}, expected "
                    f"{self.hidden_size}"
                )
        weights = [self.weight_ih, self.weight_hh]
        weights += [] if self.bias_ih is None or self.bias_hh is None else [self.bias_ih, self.bias_hh]
        if self._mode == "LSTM" and casting:
            found = _lstm_under_autocast(x, *states, *weights)
        else:
            found = run_cells(self._mode, x, states, weights, (x.shape[0],))
        return found if input.ndim == 2 else tuple(state.squeeze(0) for state in found)

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        if self.bias is not True:
            parts.append(f"bias={self.bias}")
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            parts.append(f"nonlinearity={self.nonlinearity}")
        return ", ".join(parts)


def _lstm_under_autocast(
    x: Tensor, hidden: Tensor, cell: Tensor, weight_ih: Tensor, weight_hh: Tensor, *biases: Tensor
) -> States:
    """The step whose products autocast casts, and which keeps the cell in its own type, as in PyTorch."""
    bias_ih, bias_hh = biases or (None, None)
    gates = linear(x, weight_ih, bias_ih) + linear(hidden, weight_hh, bias_hh)
    entry, forget, new, leaving = gates.chunk(4, 1)
    cell = sigmoid(forget) * cell + sigmoid(entry) * tanh(new)
    return sigmoid(leaving) * tanh(cell), cell


class RNNCell(RNNCellBase):
    """One step of `RNN`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        self._mode = f"RNN_{self.nonlinearity.upper()}"
        return self._step(input, hx)[0]


class LSTMCell(RNNCellBase):
    """One step of `LSTM`: (hidden, cell)."""

    _mode = "LSTM"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        hidden, cell = self._step(input, hx)
        return hidden, cell


class GRUCell(RNNCellBase):
    """One step of `GRU`."""

    _mode = "GRU"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(input, hx)[0]
