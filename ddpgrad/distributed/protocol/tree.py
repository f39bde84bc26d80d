"""The fixed order in which the buffers of all ranks are combined.

Floating-point addition is not associative, so a sum over ranks has the same bits on every
transport and on any number of processes only if its order never changes. Here it is one
binary tree over rank numbers: neighbours are combined first, then neighbouring pairs, then
neighbouring fours. A rank without a neighbour moves up unchanged.

    4 ranks   (0 + 1) + (2 + 3)
    5 ranks   ((0 + 1) + (2 + 3)) + 4
    6 ranks   ((0 + 1) + (2 + 3)) + (4 + 5)
    7 ranks   ((0 + 1) + (2 + 3)) + ((4 + 5) + 6)

Floating types narrower than 32 bits are accumulated in float32 and rounded once, at the
end. "avg" is the sum divided by the number of ranks, before that rounding. Work goes in
blocks, so that the operands of one tree stay in the processor's cache.
"""

from __future__ import annotations

import contextvars
import math
import sys
import threading
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...core.environment import numba_enabled

if TYPE_CHECKING:
    from .compiled_sum import Sum

BLOCK = 1 << 16
"""Elements that are carried through the whole tree before the next ones are read."""

# Elements from which compiled code makes a sum: of two ranks, of more, and of types of 16 bits, which NumPy
# converts one by one. Numba is loaded for them after so many such sums.
_COMPILED_FROM = {"none": math.inf, "pair": 1 << 17, "more": 1 << 14, "narrow": 1 << 11}
_LOAD_AFTER = 100

# Slices begin at multiples of this many elements: one element's place within a vector
# register is then the same however many processes share the work.
_ALIGN = 64

_COMBINE: dict[str, np.ufunc] = {
    "sum": np.add,
    "avg": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}

OPS = tuple(_COMBINE)
"""The names that `op` may have."""

# kinds of dtype (numpy's letters; "x": a floating type of ml_dtypes) that each op accepts
_ACCEPTS = {
    "sum": "biufcx",  # of booleans as in PyTorch: whether one is True
    "avg": "fcx",
    "product": "biufx",
    "min": "biufx",
    "max": "biufx",
    "band": "biu",
    "bor": "biu",
    "bxor": "biu",
}


class _Step(NamedTuple):
    """`slot[into] = left ∘ right`, where an operand >= 0 is a rank and ~k is slot k."""

    into: int
    left: int
    right: int


@lru_cache(maxsize=64)
def plan(ranks: int) -> tuple[_Step, ...]:
    """The tree over `ranks` leaves as straight-line steps, with as few slots as possible."""
    steps: list[_Step] = []

    def combine(first: int, span: int, slot: int) -> int:
        if span == 1:
            return first
        half = span // 2
        if first + half >= ranks:
            return combine(first, half, slot)
        left = combine(first, half, slot)
        right = combine(first + half, half, slot + 1)
        steps.append(_Step(slot, left, right))
        return ~slot

    combine(0, 1 << max(ranks - 1, 0).bit_length(), 0)
    return tuple(steps)


@lru_cache(maxsize=256)
def check(op: str, dtype: np.dtype, caller: str = "all_reduce") -> None:
    """Raise ValueError if `op` is unknown or has no meaning for `dtype`."""
    accepts = _ACCEPTS.get(op)
    if accepts is None:
        raise ValueError(f"unknown reduction {op!r}; expected one of {', '.join(OPS)}")
    if _kind(dtype) not in accepts:
        raise ValueError(f"{caller} does not support this: {op!r} is not defined for dtype {dtype}")


def _kind(dtype: np.dtype) -> str:
    # ml_dtypes registers bfloat16 and the float8 types with numpy as user types of kind V.
    return "x" if dtype.isbuiltin == 2 and "float" in dtype.name else dtype.kind


class _Recipe(NamedTuple):
    """How `ranks` arrays of one dtype are combined by one op."""

    combine: np.ufunc
    plan: tuple[_Step, ...]
    slots: int
    wide: np.dtype
    rounds: bool
    ranks: int
    divides: bool
    quiet: bool
    pair: bool  # one call combines two ranks
    compiled_from: str  # from which length on, as a key of _COMPILED_FROM


@lru_cache(maxsize=256)
def _recipe(op: str, dtype: np.dtype, ranks: int) -> _Recipe:
    check(op, dtype)
    rounds = _kind(dtype) == "x" or (dtype.kind == "f" and dtype.itemsize < 4)
    steps = plan(ranks)
    # Slots for what is combined below the root, and one for a root that must still be rounded.
    slots = 1 + max([step.into for step in steps[:-1]], default=-1)
    compiled_from = "narrow" if rounds else "pair" if ranks == 2 else "more"
    return _Recipe(
        combine=_COMBINE[op],
        plan=steps,
        slots=max(slots, int(rounds)),
        wide=np.dtype(np.float32) if rounds else dtype,
        rounds=rounds,
        ranks=ranks,
        divides=op == "avg",
        quiet=ranks == 1 or dtype.kind in "biu",
        pair=ranks == 2 and not rounds and op != "avg",
        compiled_from=compiled_from if ranks > 1 and op in ("sum", "avg") and dtype.kind != "b" else "none",
    )


def share(length: int, parts: int, index: int) -> tuple[int, int]:
    """Start and stop of the slice of `length` elements that part `index` of `parts` owns.

    The slices are contiguous, cover everything, and begin at multiples of 64 elements.
    """
    units = -(-length // _ALIGN)
    start = units * index // parts * _ALIGN
    stop = units * (index + 1) // parts * _ALIGN
    return min(start, length), min(stop, length)


def reduce_into(
    outputs: Sequence[np.ndarray], inputs: Sequence[np.ndarray], op: str = "sum", from_end: bool = False
) -> None:
    """Combine `inputs` (one array per rank, in rank order) and write the result to every output.

    from_end: begin with the last elements, for a caller that expects those in the cache.
    All arrays are one-dimensional, of one length and one dtype. An output may be the same
    memory as an input; inputs that are no outputs are left as they are. NaN wins in "min" and
    "max", integers wrap around, and floating-point overflow gives inf without a warning.
    """
    if not outputs:
        return
    first = inputs[0]
    recipe = _recipe(op, first.dtype, len(inputs))
    if recipe.pair and len(outputs) == 1:
        _silent.context.run(recipe.combine, first, inputs[1], out=outputs[0])
    elif recipe.quiet:
        _reduce(outputs, inputs, recipe, from_end)
    else:
        _silent.context.run(_reduce, outputs, inputs, recipe, from_end)


def reduce_part(output: np.ndarray, inputs: Sequence[np.ndarray], index: int, op: str = "sum") -> None:
    """Combine only the part of `inputs` that has the length of `output` and is the `index`th of such parts."""
    start = index * output.size
    reduce_into([output], [array[start : start + output.size] for array in inputs], op)


def frontier(low: int, high: int, ranks: int) -> list[range]:
    """The largest parts of the tree over `ranks` that the ranks from `low` to `high` - 1 can add by themselves."""

    def walk(first: int, span: int) -> list[range]:
        stop = min(first + span, ranks)
        if first >= high or stop <= low:
            return []
        if low <= first and stop <= high:
            return [range(first, stop)]
        return walk(first, span // 2) + walk(first + span // 2, span // 2)

    return walk(0, 1 << max(ranks - 1, 0).bit_length())


def wide_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which arrays of `dtype` are accumulated."""
    return _recipe("max", dtype, 1).wide if dtype.kind != "c" else dtype


def partial_into(output: np.ndarray, inputs: Sequence[np.ndarray], op: str) -> None:
    """Combine the arrays of one range of `frontier` into `output`, of the wide dtype; see `join_into`."""
    recipe = _recipe(op, inputs[0].dtype, len(inputs))
    slots = 1 + max([step.into for step in recipe.plan[:-1]], default=-1)
    _silent.context.run(
        _reduce, [output], inputs, recipe._replace(rounds=False, divides=False, pair=False, slots=slots)
    )


def join_into(output: np.ndarray, parts: dict[range, np.ndarray], ranks: int, op: str) -> None:
    """Combine what `partial_into` made of the ranges that cover all `ranks`, and round it to `output`.

    The result has the bits that `reduce_into` gives for all ranks' arrays.
    """
    _silent.context.run(_join_into, output, parts, ranks, op)


def _join_into(output: np.ndarray, parts: dict[range, np.ndarray], ranks: int, op: str) -> None:
    result = _total(parts, range(ranks), ranks, _COMBINE[op])
    if op == "avg":
        result = np.divide(result, ranks, dtype=result.dtype)
    np.copyto(output, result, casting="unsafe")


def merged(
    parts: dict[range, np.ndarray], low: int, high: int, ranks: int, op: str
) -> dict[range, np.ndarray]:
    """What `partial_into` made of ranges that cover the ranks from `low` to `high` - 1, as far as they can be added."""
    return {
        part: _silent.context.run(_total, parts, part, ranks, _COMBINE[op])
        for part in frontier(low, high, ranks)
    }


def _total(parts: dict[range, np.ndarray], node: range, ranks: int, combine: np.ufunc) -> np.ndarray:
    """The sum of a node of the tree, by the ranks below it, from those of `parts`."""

    def total(first: int, span: int) -> np.ndarray:
        stop = min(first + span, ranks)
        if range(first, stop) in parts:
            return parts[range(first, stop)]
        return combine(total(first, span // 2), total(first + span // 2, span // 2))

    return total(node.start, 1 << (len(node) - 1).bit_length())


class _Silent(threading.local):
    """A context, per thread, in which NumPy does not warn: entering it costs a tenth of np.errstate."""

    def __init__(self) -> None:
        with np.errstate(all="ignore"):
            self.context = contextvars.copy_context()


_silent = _Silent()


def _reduce(
    outputs: Sequence[np.ndarray], inputs: Sequence[np.ndarray], recipe: _Recipe, from_end: bool = False
) -> None:
    length = inputs[0].size
    if length >= _COMPILED_FROM[recipe.compiled_from] and (
        compiled := _compiled_sum(outputs, inputs, recipe)
    ):
        for start in _starts(length, 4 * BLOCK, from_end):
            part = slice(start, start + 4 * BLOCK)
            views = [array[part] for array in inputs]
            compiled(views if outputs is inputs else [output[part] for output in outputs], views)
        return
    if length <= 2 * BLOCK and not recipe.slots:
        _reduce_block(outputs, inputs, recipe, [])
        return
    slots = [np.empty(min(length, BLOCK), recipe.wide) for _ in range(recipe.slots)]
    if length <= BLOCK:
        _reduce_block(outputs, inputs, recipe, slots)
        return
    for start in _starts(length, BLOCK, from_end):
        stop = min(start + BLOCK, length)
        _reduce_block(
            [output[start:stop] for output in outputs],
            [array[start:stop] for array in inputs],
            recipe,
            [slot[: stop - start] for slot in slots],
        )


def _starts(length: int, block: int, from_end: bool) -> Iterable[int]:
    starts = range(0, length, block)
    return reversed(starts) if from_end else starts


_sums = 0


def _compiled_sum(outputs: Sequence[np.ndarray], inputs: Sequence[np.ndarray], recipe: _Recipe) -> Sum | None:
    """The compiled sum of these arrays, once there were enough sums to load it; None where NumPy has to add."""
    global _sums
    _sums += 1
    if (_sums < _LOAD_AFTER and "numba" not in sys.modules) or not numba_enabled():
        return None
    if not all(array.flags.c_contiguous for array in (*inputs, *outputs)):
        return None
    from .compiled_sum import sum_of

    return sum_of(inputs[0].dtype, outputs[0].dtype, recipe.ranks, outputs is inputs, recipe.divides)


def _reduce_block(
    outputs: Sequence[np.ndarray], inputs: Sequence[np.ndarray], recipe: _Recipe, slots: list[np.ndarray]
) -> None:
    first = outputs[0]
    plan = recipe.plan
    if plan:
        root = slots[0] if recipe.rounds else first
        last = plan[-1]
        for step in plan:
            left = inputs[step.left] if step.left >= 0 else slots[~step.left]
            right = inputs[step.right] if step.right >= 0 else slots[~step.right]
            # Only the root may touch an output: an output can be an input that is still to be read.
            recipe.combine(left, right, out=root if step is last else slots[step.into], dtype=recipe.wide)
        if recipe.divides:
            np.divide(root, recipe.ranks, out=root)
        if recipe.rounds:
            np.copyto(first, root, casting="unsafe")
    elif first is not inputs[0]:
        first[...] = inputs[0]
    for output in outputs[1:]:
        output[...] = first
