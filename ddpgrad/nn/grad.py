"""`torch.nn.grad`: the gradients of convolutions for their input and for their weight, as functions of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..autograd import enable_grad, grad
from ..core.tensor import Tensor
from ..ops.creation.factories import zeros
from . import functional

_Gradient = Callable[..., Any]


def _gradients(name: str) -> tuple[_Gradient, _Gradient]:
    convolve = getattr(functional, name)

    def of_input(
        input_size: Sequence[int], weight: Tensor, grad_output: Tensor, *options: Any, **named: Any
    ) -> Any:
        """The gradient of the input of shape `input_size`; options: those of the convolution, from `stride` on."""
        with enable_grad():
            input = zeros(input_size, dtype=weight.dtype, device=weight.device, requires_grad=True)
            out = convolve(input, weight, None, *options, **named)
            return grad(
                out, input, grad_output, create_graph=grad_output.requires_grad or weight.requires_grad
            )[0]

    def of_weight(
        input: Tensor, weight_size: Sequence[int], grad_output: Tensor, *options: Any, **named: Any
    ) -> Any:
        """The gradient of the weight of shape `weight_size`; options: those of the convolution, from `stride` on."""
        with enable_grad():
            weight = zeros(weight_size, dtype=input.dtype, device=input.device, requires_grad=True)
            out = convolve(input, weight, None, *options, **named)
            return grad(
                out, weight, grad_output, create_graph=grad_output.requires_grad or input.requires_grad
            )[0]

    return of_input, of_weight


conv1d_input, conv1d_weight = _gradients("conv1d")
conv2d_input, conv2d_weight = _gradients("conv2d")
conv3d_input, conv3d_weight = _gradients("conv3d")

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]
