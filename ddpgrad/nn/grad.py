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
        return _gradient(
            lambda x: convolve(x, weight, None, *options, **named), input_size, weight, grad_output
        )

    def of_weight(
        input: Tensor, weight_size: Sequence[int], grad_output: Tensor, *options: Any, **named: Any
    ) -> Any:
        """The gradient of the weight of shape `weight_size`; options: those of the convolution, from `stride` on."""
        return _gradient(
            lambda x: convolve(input, x, None, *options, **named), weight_size, input, grad_output
        )

    return of_input, of_weight


def _gradient(
    function: Callable[[Tensor], Tensor], size: Sequence[int], given: Tensor, grad_output: Tensor
) -> Tensor | None:
    """The gradient of `function`, which is linear, for its argument of shape `size`. given: its other operand."""
    with enable_grad():
        x = zeros(size, dtype=given.dtype, device=given.device, requires_grad=True)
        graph = grad_output.requires_grad or given.requires_grad
        return grad(function(x), x, grad_output, create_graph=graph)[0]


conv1d_input, conv1d_weight = _gradients("conv1d")
conv2d_input, conv2d_weight = _gradients("conv2d")
conv3d_input, conv3d_weight = _gradients("conv3d")

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]
