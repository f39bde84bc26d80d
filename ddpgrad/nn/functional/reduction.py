"""The reduction of a loss over its elements: none, mean or sum."""

from __future__ import annotations

from ...core.errors import warn_program
from ...core.tensor import Tensor
from ...ops.dispatch.node import guarded

KNOWN = ("none", "mean", "sum")


def chosen(reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> str:
    """The reduction asked for; PyTorch's former options `size_average` and `reduce` overrule it."""
    if size_average is not None or reduce is not None:
        meant = "none" if reduce is False else "sum" if size_average is False else "mean"
        warn_program(
            f"size_average and reduce args will be deprecated, please use reduction='{meant}' instead."
        )
        return meant
    if reduction == "elementwise_mean":
        warn_program("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.")
        return "mean"
    if reduction not in KNOWN:
        raise ValueError(
            f"{reduction} is not a valid value for reduction; expected one of {', '.join(KNOWN)}"
        )
    return reduction


def named(reduction: int | str) -> str:
    """The name of a reduction, which losses of `torch` and of `torch.ops.aten` take as a number: 0 none, 1 mean, 2 sum."""
    if isinstance(reduction, str):
        return reduction
    if reduction not in range(len(KNOWN)):
        raise ValueError(
            f"{reduction} is not a valid value for reduction; expected 0 (none), 1 (mean) or 2 (sum)"
        )
    return KNOWN[reduction]


def reduced(losses: Tensor, reduction: str, *saved: Tensor | None) -> Tensor:
    """The mean or the sum of all elements, or the elements themselves.

    saved: the tensors that may not be written to before backward.
    """
    if reduction == "mean":
        losses = losses.mean()
    elif reduction == "sum":
        losses = losses.sum()
    return guarded(losses, *saved) if saved else losses
