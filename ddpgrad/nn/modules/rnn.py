"""Recurrent layers: RNN, LSTM and GRU over sequences. One step of each is in `rnn_cell.py`."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ...backend.sequence import BatchSizes
from ...core.face import also_in
from ...core.tensor import Tensor
from ...ops.creation.factories import empty, zeros
from ...ops.dispatch import autocast
from ...ops.indexing.gather import index_select
from ...ops.shape.shape import reshape
from .. import init
from ..functional.recurrent import States, run_layers
from ..parameter import Parameter
from ..utils.rnn import PackedSequence
from .module import Module

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class RNNBase(Module):
    """What RNN, LSTM and GRU share: parameters by layer and direction, and the run over a sequence.

    Inputs are (T, N, input_size), (N, T, input_size) with `batch_first`, (T, input_size), or a
    `PackedSequence`. Returns (states of the last layer at all steps, last states of all layers).
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_sizes(mode, input_size, hidden_size, num_layers, dropout, proj_size)
        for name, flag in (("bias", bias), ("batch_first", batch_first)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} should be of type bool, got: {type(flag).__name__}")
        self.mode, self.input_size, self.hidden_size, self.num_layers = (
            mode,
            input_size,
            hidden_size,
            num_layers,
        )
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        out_size = proj_size or hidden_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            width = input_size if layer == 0 else out_size * self._directions
            for direction in range(self._directions):
                suffix = f"_l{layer}" + ("_reverse" if direction else "")
                gates = _GATES[mode] * hidden_size
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (gates, width),
                    "weight_hh": (gates, out_size),
                }
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    setattr(self, name + suffix, Parameter(empty(*shape, device=device, dtype=dtype)))
                self._all_weights.append([name + suffix for name in shapes])
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights(self) -> list[Parameter]:
        return [weight for weights in self.all_weights for weight in weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    def __getstate__(self) -> dict[str, Any]:
        flat = {"_flat_weights_names": self._flat_weights_names, "_flat_weights": self._flat_weights}
        return super().__getstate__() | flat  # which PyTorch expects of every file

    def reset_parameters(self) -> None:
        """Draw all parameters anew: uniform within 1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing: PyTorch's hint for cuDNN, for programs that give it."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx)
        if input.ndim not in (2, 3):
            raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {input.ndim}D instead")
        batched = input.ndim == 3
        x = (
            input.transpose(0, 1)
            if batched and self.batch_first
            else input
            if batched
            else input.unsqueeze(1)
        )
        length, batch = x.shape[:2]
        if not length:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        hx = self._initial(hx, x, batch, batched)
        rows, last = self._run(reshape(x, (length * batch, x.shape[2])), (batch,) * length, hx)
        out = reshape(rows, (length, batch, rows.shape[1]))
        if not batched:
            return out.squeeze(1), self._handed([state.squeeze(1) for state in last])
        return out.transpose(0, 1) if self.batch_first else out, self._handed(last)

    def _run_packed(self, input: PackedSequence, hx: Any) -> Any:
        data, batch_sizes, order, back = input
        sizes = tuple(batch_sizes.tolist())
        hx = self._initial(hx, data, sizes[0], True)
        if order is not None:
            hx = tuple(index_select(state, 1, order) for state in hx)
        rows, last = self._run(data, sizes, hx)
        if back is not None:
            last = [index_select(state, 1, back) for state in last]
        return PackedSequence(rows, batch_sizes, order, back), self._handed(last)

    def _handed(self, last: list[Tensor]) -> Any:
        return tuple(last) if self.mode == "LSTM" else last[0]

    def _initial(self, hx: Any, x: Tensor, batch: int, batched: bool) -> States:
        """The initial states (layers * directions, batch, size) of each kind; zeros by default."""
        casts = autocast.state.enabled.get(x.device.type)
        if x.dtype is not self._flat_weights[0].dtype and not casts:
            raise ValueError(
                f"RNN input dtype ({x.dtype}) does not match weight dtype ({self._flat_weights[0].dtype}). Convert "
                f"input: input.to({self._flat_weights[0].dtype}), or convert model: model.to({x.dtype})"
            )
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}"
            )
        count = self.num_layers * self._directions
        shapes = [(count, batch, self.proj_size or self.hidden_size)]
        if self.mode == "LSTM":
            shapes.append((count, batch, self.hidden_size))
        if hx is None:
            return tuple(zeros(shape, dtype=x.dtype, device=x.device) for shape in shapes)
        given = tuple(hx) if self.mode == "LSTM" else (hx,)
        for name, state, shape in zip(("hidden[0]", "hidden[1]"), given, shapes, strict=False):
            if state.ndim != (3 if batched else 2):
                kind = "batched 3-D" if batched else "unbatched 2-D"
                raise RuntimeError(
                    f"For {kind} input, hx should also be {3 if batched else 2}-D but got {state.ndim}-D tensor"
                )
            if state.dtype is not x.dtype and not casts:
                raise RuntimeError(f"Expected {name} of dtype {x.dtype} as the input, got {state.dtype}")
            size = tuple(state.shape) if batched else (state.shape[0], 1, state.shape[1])
            if size != shape:
                raise RuntimeError(f"Expected {name} size {shape}, got {list(size)}")
        return given if batched else tuple(state.unsqueeze(1) for state in given)

    def _run(self, rows: Tensor, sizes: BatchSizes, hx: States) -> tuple[Tensor, list[Tensor]]:
        dropout = self.dropout if self.training else 0.0
        return run_layers(self.mode, rows, hx, self.all_weights, sizes, self._directions, dropout)

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        for name, usual in (
            ("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0),
            ("bidirectional", False),
        ):  # fmt: skip
            if getattr(self, name) != usual:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts)


def _refuse_projections(kwargs: dict[str, Any]) -> None:
    if "proj_size" in kwargs:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


def _check_sizes(
    mode: str, input_size: Any, hidden_size: Any, num_layers: int, dropout: Any, proj_size: int
) -> None:
    if mode not in _GATES:
        raise ValueError(f"Unrecognized RNN mode: {mode}")
    for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
        if not isinstance(size, int):
            raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
        if size <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
        )
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
            f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=4,
        )
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")


class RNN(RNNBase):
    """act(W_ih x + b_ih + W_hh h + b_hh) at each step; nonlinearity: "tanh" or "relu"."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **refused: Any,
    ) -> None:
        _refuse_projections(refused)
        if refused:
            raise TypeError(f"RNN.__init__() got an unexpected keyword argument '{next(iter(refused))}'")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(
            f"RNN_{nonlinearity.upper()}",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory; states are (hidden, cell).

    proj_size: the hidden state is projected to so many dimensions. Source: Hochreiter & Schmidhuber, 1997
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """A gated recurrent unit at each step. Source: https://arxiv.org/abs/1406.1078"""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse_projections(kwargs)
        super().__init__("GRU", *args, **kwargs)


__getattr__ = also_in(__package__ or "", "rnn_cell")
