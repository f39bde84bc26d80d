"""Activation layers."""

from __future__ import annotations

from typing import Any

from .._tensor import Tensor
from ..ops.creation import full
from ..ops.pointwise import where
from ..ops.shape import reshape
from . import functional as F
from .module import Module
from .parameter import Parameter


class _InPlace(Module):
    """An activation that may overwrite its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_InPlace):
    """max(input, 0)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)


class ReLU6(_InPlace):
    """input limited to [0, 6]."""

    def forward(self, input: Tensor) -> Tensor:
        return F.relu6(input, self.inplace)


class SiLU(_InPlace):
    """input * sigmoid(input)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, self.inplace)


class LeakyReLU(Module):
    """input where positive, else input * negative_slope."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class PReLU(Module):
    """input where positive, else input times a learned slope, one for all or one per channel (dimension 1)."""

    weight: Parameter

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = Parameter(full((num_parameters,), float(init), device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        slope = self.weight
        if self.num_parameters > 1:
            slope = reshape(slope, (-1,) + (1,) * (input.ndim - 2))
        return where(input > 0, input, input * slope)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class ELU(Module):
    """input where positive, else alpha * (exp(input) - 1)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class Hardtanh(Module):
    """input limited to [min_val, max_val]."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        if max_val <= min_val:
            raise ValueError(f"max_val must be larger than min_val, got {max_val} and {min_val}")
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" + (", inplace=True" if self.inplace else "")


class GELU(Module):
    """input times the normal distribution function of input; approximate: "none" or "tanh"."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Mish(Module):
    """input * tanh(softplus(input))."""

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class Sigmoid(Module):
    """1 / (1 + exp(-input))."""

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class LogSigmoid(Module):
    """log(sigmoid(input))."""

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softplus(Module):
    """log(1 + exp(beta * input)) / beta; input itself where that is above threshold / beta."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class GLU(Module):
    """The first half along `dim` times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class _Along(Module):
    """An activation that normalises along `dim`, which must be given."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def _dim(self) -> int:
        if self.dim is None:
            raise TypeError(f"{self._get_name()}: dim must be given; for one row of scores each, pass dim=-1")
        return self.dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_Along):
    """exp(input) normalised to sum 1 along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self._dim())


class LogSoftmax(_Along):
    """The logarithm of softmax."""

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self._dim())
