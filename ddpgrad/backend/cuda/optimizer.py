"""Optimizer steps in one CUDA kernel for all parameters, in place, for all floating-point types.

A kernel is made of the optimizer's rule, which also runs on the CPU (`tracing.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from . import tracing
from .segments import CHUNK, INPUTS, PLACE, PLACES, tables
from .source import WARP, computes, elementwise, has_type

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


def numbers_of_step(rule: Callable[..., Any], steps: Array, given: Sequence[Any]) -> tuple[Array, ...]:
    """What `rule` makes of the first of `steps` and some numbers, as 0-d float64 arrays, in one launch."""
    return _numbers(rule, len(given))(steps[0], *given)


@functools.cache
def _numbers(rule: Callable[..., Any], count: int) -> Any:
    names = [f"n{i}" for i in range(count)]
    statements, results = tracing.traced_rule(rule, ["step", *names])
    outputs = [f"out{i}" for i in range(len(results))]
    body = ["typedef double A;", "const double step = count;", *statements]
    body += [f"{out} = {value};" for out, value in zip(outputs, results, strict=True)]
    return cupy.ElementwiseKernel(
        ", ".join(["T count", *(f"float64 {name}" for name in names)]),
        ", ".join(f"float64 {out}" for out in outputs),
        "\n".join(body),
        f"ddpgrad_{rule.__name__}",
        preamble=tracing.FUNCTIONS,
    )


def root_of_squares(arrays: Sequence[Array], dtype: Any) -> Array:
    """The root of the sum of the squares of all elements, in `dtype`, in two launches."""
    return root_of_sum(squares(arrays), dtype) if _listed(arrays) else NotImplemented


def root_of_sum(sums: Array, dtype: Any) -> Array:
    """The root of the sum of `squares`, in `dtype`."""
    return _root(sums, cupy.empty((), dtype))


_root = cupy.ReductionKernel(
    "float64 x", "R out", "x", "a + b", "out = (R)sqrt(a)", "0", "ddpgrad_root_of_sum"
)


def sums_of_squares(arrays: Sequence[Array]) -> Array:
    """The sum of the squares of all elements, as a 0-d float64 array; added in an order that the shapes decide."""
    return squares(arrays).sum() if _listed(arrays) else NotImplemented


def squares(arrays: Sequence[Array]) -> Array:
    """The sums of the squares of each chunk of `arrays`, which are of one type, as one float64 array."""
    of_chunk, rows, width = tables([(x,) for x in arrays], WARP)
    sums = cupy.empty(len(of_chunk), np.float64)
    _squares(of_chunk, rows, width, arrays[0], sums)
    return sums


def counts_of_squares(like: Array, sizes: Sequence[int]) -> Any:
    """How many numbers `squares` gives for each of some arrays of the type of `like`, by their sizes."""
    return [-(-size // CHUNK) for size in sizes] if has_type(like) and sizes[0] else NotImplemented


_squares = elementwise(
    f"{INPUTS}, raw T like",
    "raw float64 sums",
    f"""{PLACES}
    const T* x = (const T*)row[2];
    double total = 0;
    for (long long j = first; j < last; j += 32) total += (double)(A)x[j] * (double)(A)x[j];
    total = warp_sum(total);
    if (i % 32 == 0) sums[i / 32] = total;
    """,
    "sums_of_squares",
)


def clip_(arrays: Sequence[Array], most: float, norm: Array) -> Any:
    """Multiply the arrays by most / norm in place, where that is below 1 or nan."""
    if not _listed(arrays):
        return NotImplemented
    _clip(*tables([(x,) for x in arrays]), most, norm, arrays[0])
    return None


_clip = elementwise(
    f"{INPUTS}, float64 most, N norm",
    "raw T like",
    f"""{PLACE}
    T& x = ((T*)row[2])[place];
    const double factor = most / ((double)norm + 1e-6);
    if (!(factor >= 1)) x = (T)((A)x * (A)factor);
    """,
    "clip",
)


def unscale_(arrays: Sequence[Array], factor: Any) -> Any:
    """Whether an element is not finite, as a 0-d bool; and multiply the arrays by `factor`, unless it is None."""
    if not _listed(arrays):
        return NotImplemented
    bad = cupy.zeros((), np.bool_)
    of_chunk, rows, width = tables([(x,) for x in arrays])
    _unscale(of_chunk, rows, width, factor is not None, 1.0 if factor is None else factor, arrays[0], bad)
    return bad


_unscale = elementwise(
    f"{INPUTS}, bool multiply, float64 factor",
    "raw T like, raw bool bad",
    f"""{PLACE}
    T& x = ((T*)row[2])[place];
    if (!isfinite((A)x)) bad[0] = true;
    if (multiply) x = (T)((A)x * (A)factor);
    """,
    "unscale",
)


def _listed(arrays: Sequence[Array]) -> bool:
    """True for arrays of one floating-point type that a table can list."""
    return computes(*arrays) and all(x.flags.c_contiguous for x in arrays)


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
            "const A g = A(scale) * A(grad) + (A(decay) == A(0) ? A(0) : A(decay) * A(param));",
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
