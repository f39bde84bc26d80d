"""ONNX export of losses that are one op."""

from __future__ import annotations

import numpy as np

from .graph import Graph, converts
from .trace import Step

_LOWEST_LOG = -100.0  # where the logarithms of `bernoulli_loss` stop


@converts("cross_entropy_rows")
def _cross_entropy(g: Graph, s: Step) -> str:
    dtype, smoothing = s.input.dtype, s.label_smoothing
    keep, places = _targets(g, s)
    counts = g.node("Unsqueeze", [g.cast(keep, dtype), g.ints([1])])
    columns = g.constant(np.arange(s.input.shape[1])[None])
    hit = g.node("Equal", [g.node("Unsqueeze", [places, g.ints([1])]), columns])
    share = onehot = g.node("Mul", [g.cast(hit, dtype), counts])
    if smoothing:
        smooth = g.node("Mul", [counts, g.constant(smoothing / s.input.shape[1], dtype)])
        share = g.node("Add", [g.node("Mul", [onehot, g.constant(1 - smoothing, dtype)]), smooth])
    if s.weight is not None:
        share, onehot = (g.node("Mul", [name, s.weight]) for name in (share, onehot))
    logp = g.node("LogSoftmax", [s.input], axis=1)
    losses = g.node("ReduceSum", [g.node("Mul", [logp, share]), g.ints([1])], keepdims=0)
    return _reduced(g, s, g.node("Neg", [losses]), onehot)


@converts("nll_loss_rows")
def _nll_loss(g: Graph, s: Step) -> str:
    dtype = s.input.dtype
    keep, places = _targets(g, s)
    column = g.node("Unsqueeze", [places, g.ints([1])])
    picked = g.node("GatherElements", [s.input, column], axis=1)
    picked = g.node("Where", [keep, g.node("Squeeze", [picked, g.ints([1])]), g.constant(0, dtype)])
    share = g.cast(keep, dtype)
    if s.weight is not None:
        share = g.node("Mul", [share, g.node("Gather", [s.weight, places], axis=0)])
    return _reduced(g, s, g.node("Neg", [g.node("Mul", [picked, share])]), share)


def _targets(g: Graph, s: Step) -> tuple[str, str]:
    """(which targets count, the class of each; 0 for one that does not)."""
    target = g.of(s.target)
    keep = g.node("Not", [g.node("Equal", [target, g.constant(s.ignore_index, np.int64)])])
    return keep, g.node("Where", [keep, target, g.constant(0, np.int64)])


def _reduced(g: Graph, s: Step, losses: str, share: str) -> str:
    """The losses, their sum, or their mean by weight."""
    if s.reduction == "none":
        return losses
    total = g.node("ReduceSum", [losses], keepdims=0)
    if s.reduction == "sum":
        return total
    return g.node("Div", [total, g.node("ReduceSum", [share], keepdims=0)])


@converts("huber")
def _huber(g: Graph, s: Step) -> str:
    dtype = s.input.dtype
    size = g.node("Abs", [s.input])
    inner = g.node("Min", [size, g.constant(s.delta, dtype)])
    rest = g.node("Sub", [size, g.node("Mul", [inner, g.constant(0.5, dtype)])])
    return g.node("Mul", [g.node("Mul", [inner, rest]), g.constant(s.scale, dtype)])


@converts("bernoulli_loss")
def _bernoulli_loss(g: Graph, s: Step) -> str:
    p, target = g.of(s.input), g.of(s.target)
    one, lowest = (g.constant(n, s.input.dtype) for n in (1, _LOWEST_LOG))
    parts = []
    for share, chance in ((target, p), (g.node("Sub", [one, target]), g.node("Sub", [one, p]))):
        parts.append(g.node("Mul", [share, g.node("Max", [g.node("Log", [chance]), lowest])]))
    return g.node("Neg", [g.node("Add", parts)])
