"""How many multiply-adds a call of an op takes, for the ops that take many."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .declare import Op

Arguments = Mapping[str, Any]


def multiply_adds(op: Op, arguments: tuple[Any, ...], results: tuple[Any, ...]) -> int:
    """Multiply-adds of one call: of products, convolutions, attention and recurrent cells; 0 for other ops.

    arguments: those of the kernel, with arrays for tensors. results: the arrays that it gave.
    """
    rule = _RULES.get(op.name)
    return 0 if rule is None else int(rule(dict(zip(op.params, arguments, strict=False)), results[0]))


def _products(arguments: Arguments, result: Any) -> int:
    """Each element of the result sums over the last dimension of the first operand."""
    first = next(iter(arguments.values()))
    return result.size * first.shape[-1]


def _convolution(arguments: Arguments, result: Any) -> int:
    return result.size * math.prod(arguments["weight"].shape[1:])


def _transposed_convolution(arguments: Arguments, result: Any) -> int:
    return arguments["grad"].size * math.prod(arguments["weight"].shape[1:])


def _attention(arguments: Arguments, result: Any) -> int:
    query, key = arguments["query"], arguments["key"]
    pairs = query.size // query.shape[-1] * key.shape[-2]
    return pairs * (query.shape[-1] + arguments["value"].shape[-1])


def _recurrent(arguments: Arguments, result: Any) -> int:
    """The products with the state; those with the input are one product before."""
    return arguments["input"].size // arguments["weight"].shape[0] * arguments["weight"].size


_RULES: dict[str, Callable[[Arguments, Any], int]] = {
    "matmul": _products,
    "linear": _products,
    "convolution": _convolution,
    "convolution_input": _transposed_convolution,
    "attention": _attention,
    "lstm_sequence": _recurrent,
    "gru_sequence": _recurrent,
    "rnn_sequence": _recurrent,
}
