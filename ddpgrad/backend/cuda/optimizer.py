"""Optimizer steps in one CUDA kernel for all parameters, in place, for all floating-point types.

A kernel is made of the optimizer's rule, which also runs on the CPU (`tracing.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from . import tracing
from .segments import INPUTS, PLACE, tables
from .source import computes, elementwise

Array = Any


def update_(
    rule: Callable[..., Any],
    targets: Sequence[Sequence[Array]],
    numbers: Sequence[Any],
    scale: Any = 1.0,
    decay: Any = 0.0,
    shrink: Any = 1.0,
    skip: Any = None,
) -> Any:
    """Apply an optimizer's rule to every element of each target: see `ops/dispatch/update.py`."""
    if not all(computes(*target) for target in targets):
        return NotImplemented
    several = len(targets) > 1
    kernel = _kernel(rule, len(targets[0]) - 2, len(numbers), several)
    options = (skip is not None and skip, scale, decay, shrink, *numbers)
    if several:
        kernel(*tables(targets), *options, targets[0][0])
    else:
        param, grad, *states = targets[0]
        kernel(grad, *options, param, *states)
    return None


@functools.cache
def _kernel(rule: Callable[..., Any], states: int, numbers: int, several: bool) -> Any:
    """The kernel for one target, or for all of several, whose arrays a table lists."""
    arrays = [f"state{i}" for i in range(states)]
    scalars = [f"number{i}" for i in range(numbers)]
    statements, results = tracing.traced(
        rule, "p", "g", [f"old_{name}" for name in arrays], [f"n{i}" for i in range(numbers)]
    )
    body = "\n".join(
        [
            "const A p = A(shrink) * A(param);",
            "const A g = A(scale) * A(grad) + A(decay) * A(param);",
            *(f"const A old_{name} = A({name});" for name in arrays),
            *(f"const A n{i} = A({name});" for i, name in enumerate(scalars)),
            *statements,
            "if (!skip) {",
            *(f"{name} = T({value});" for name, value in zip(["param", *arrays], results, strict=True)),
            "}",
        ]
    )
    options = ", ".join(["bool skip", *(f"float64 {n}" for n in ("scale", "decay", "shrink", *scalars))])
    inputs, outputs = f"T grad, {options}", ", ".join(f"T {name}" for name in ["param", *arrays])
    if several:
        inputs, outputs = f"{INPUTS}, {options}", "raw T like"
        places = "\n".join(
            f"T& {name} = ((T*)row[{k}])[place];" for k, name in enumerate(["param", "grad", *arrays], 2)
        )
        body = f"{PLACE}\n{places}\n{body}"
    name = rule.__name__ if rule.__name__.isidentifier() else "rule"
    return elementwise(inputs, outputs, body, f"{name}_of_several" if several else name, tracing.FUNCTIONS)
