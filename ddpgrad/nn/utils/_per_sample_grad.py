"""`call_for_per_sample_grads`: the gradient of each example of a batch, for differential privacy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...autograd.function import Function
from ...core.tensor import Tensor
from ...ops.shape.stacking import cat
from ...utils._pytree import tree_leaves, tree_map
from ..modules.module import Module
from .stateless import functional_call


class _Expanded(Function):
    """A parameter once for each example; its gradient is the parameter's `grad_sample`, times `scale`."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor, size: int, scale: int) -> tuple[Tensor, ...]:
        ctx.parameter, ctx.scale = parameter, scale
        return tuple(parameter.detach().clone() for _ in range(size))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        ctx.parameter.grad_sample = cat([g.unsqueeze(0) for g in gradients]) * ctx.scale
        return None, None, None


def call_for_per_sample_grads(
    module: Module, *, batch_size: int | None = None, loss_reduction: str = "sum", batch_first: bool = True
) -> Callable[..., Any]:
    """The forward of `module`, after whose backward each parameter has a `grad_sample`, and no `grad`.

    Its shape is (examples, *shape of the parameter). Examples run through the module one by one, along dimension 0 of
    all tensors among the arguments, or 1 with batch_first=False. batch_size: their number, if the arguments do not
    say it. loss_reduction: 'mean' if the loss is a mean over the batch, which is undone; else 'sum'.
    Raises RuntimeError for arguments that make no sense, and where a `grad_sample` is left from before.
    """
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}")
    if not isinstance(module, Module):
        raise RuntimeError(f"Module passed must be nn.Module, got {type(module).__name__}")
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise RuntimeError(f"Batch size passed must be None or a positive integer, got {batch_size!r}")
    left = [n for n, p in module.named_parameters() if getattr(p, "grad_sample", None) is not None]
    if left:
        raise RuntimeError(f"grad_sample of {', '.join(left)} is left from another call: set it to None")
    dim = 0 if batch_first else 1

    @functools.wraps(module.forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        size = _size((args, kwargs), dim) if batch_size is None else batch_size
        scale = size if loss_reduction == "mean" else 1
        trained = [
            (n, _Expanded.apply(p, size, scale)) for n, p in module.named_parameters() if p.requires_grad
        ]
        outputs = []
        for i in range(size):
            mine, named = tree_map(
                lambda x, i=i: x.narrow(dim, i, 1) if isinstance(x, Tensor) else x, (args, kwargs)
            )
            outputs.append(functional_call(module, {n: copies[i] for n, copies in trained}, mine, named))
        return tree_map(
            lambda *parts: cat(parts, dim) if isinstance(parts[0], Tensor) else parts[0], *outputs
        )

    return forward


def _size(arguments: Any, dim: int) -> int:
    sizes = {x.shape[dim] for x in tree_leaves(arguments) if isinstance(x, Tensor)}
    if len(sizes) != 1:
        raise RuntimeError(
            f"call_for_per_sample_grads: expected tensors of one batch size among the arguments, found {sorted(sizes)}; "
            "give batch_size"
        )
    return sizes.pop()
