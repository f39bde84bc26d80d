"""Specialised forms of `node.record` for ops of one and of two tensors, which run most often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...autograd.accumulate import edge_of
from ...autograd.nodes import NO_EDGE, next_sequence, observers
from ...core.tensor import Tensor
from .node import OpNode, new

if TYPE_CHECKING:
    from .declare import Op


def record_single(
    op: Op, input: Tensor, raw: tuple[Any, ...], out: Tensor, watched: Sequence[list[int]] = ()
) -> None:
    """Lean form of `record` for an op of one tensor. raw: all arguments as the kernel had them."""
    node = new(OpNode)
    node.op = op
    fn = input._grad_fn
    node.edges = ((fn, input._output_nr) if fn is not None and input._view is None else edge_of(input),)
    array = out._array
    node.shape = array.shape
    node.dtype = array.dtype
    node.sequence = next_sequence()
    if op.keep:
        pick, inputs, _, guards_out = op.plans[-1]
        node._kept = pick((*raw, array, raw[0].shape))
        if watched or (inputs and guards_out):
            counters = [
                *([input._versions] if inputs else ()),
                *watched,
                *([out._versions] if guards_out else ()),
            ]
            node._counters, node._versions = tuple(counters), tuple([counter[0] for counter in counters])
        elif inputs or guards_out:
            counter = input._versions if inputs else out._versions
            node._counters, node._versions = (counter,), (counter[0],)
        else:
            node._counters = node._versions = ()
    else:
        node._kept = node._counters = node._versions = ()
    out._requires_grad = True
    out._grad_fn = node
    if observers:
        node.observed()


def record_pair(op: Op, input: Tensor, other: Tensor | None, a: Any, b: Any, out: Tensor) -> None:
    """Lean form of `record` for an op of two tensors and nothing else. a, b: their arrays, or b a number."""
    node = new(OpNode)
    node.op = op
    # As `edge_of`, for the usual case that a tensor is no view and has a history.
    bits = 0
    edge = other_edge = NO_EDGE
    if input._requires_grad:
        bits = 1
        fn = input._grad_fn
        edge = (fn, input._output_nr) if fn is not None and input._view is None else edge_of(input)
    if other is not None and other._requires_grad:
        bits |= 2
        fn = other._grad_fn
        other_edge = (fn, other._output_nr) if fn is not None and other._view is None else edge_of(other)
    node.edges = (edge, other_edge)
    array = out._array
    node.shape = array.shape
    node.dtype = array.dtype
    node.sequence = next_sequence()
    if op.keep:
        pick, inputs, _, guards_out = op.plans[bits]
        if op.shapes:
            node._kept = pick((a, b, array, a.shape, () if other is None else b.shape, None))
        else:
            node._kept = pick((a, b, array, None))
        if len(inputs) == 2 and other is not None:
            counter, second = input._versions, other._versions
            node._counters, node._versions = (counter, second), (counter[0], second[0])
        else:
            # A number has no version.
            kept = (input if inputs[0] == 0 else other) if inputs else None
            if kept is None:
                node._counters = node._versions = ()
            else:
                counter = kept._versions
                node._counters, node._versions = (counter,), (counter[0],)
        if guards_out:
            node._counters += (out._versions,)
            node._versions += (0,)
    else:
        node._kept = node._counters = node._versions = ()
    out._requires_grad = True
    out._grad_fn = node
    if observers:
        node.observed()
