"""Einstein summation: any contraction, as a sequence of batched matrix products."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from ...core.tensor import Tensor
from ..dispatch.tensor_function import tensor_function
from ..dispatch.vocabulary import VOCABULARY
from ..reduction import reduce
from ..shape import shape
from . import matrix

# A letter, or the place (from the right) of a dimension that an ellipsis stands for.
Label = str | int


class _Labelled(NamedTuple):
    """A tensor with a label for each dimension, all different."""

    tensor: Tensor
    labels: tuple[Label, ...]


def _apart(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`function`, which takes its operands in one list too, and asks them one by one."""

    @functools.wraps(function)
    def call(*args: Any) -> Tensor:
        return (
            function(args[0], *args[1])
            if len(args) == 2 and isinstance(args[0], str) and isinstance(args[1], (list, tuple))
            else function(*args)
        )

    inner = function
    while hasattr(inner, "__wrapped__"):
        inner.__dict__["shown"] = call
        inner = inner.__wrapped__  # type: ignore[attr-defined]
    return call


@_apart
@tensor_function(method=False)
def einsum(*args: Any) -> Tensor:
    """The sum of products over the indices that the output does not have.

    `einsum("bij,bjk->bik", x, y)`, with one letter for each dimension, `...` for any number of
    them, and without `->` the letters that occur once, in alphabetical order; or
    `einsum(x, [0, 1], y, [1, 2], [0, 2])`. Three or more operands are contracted pair by
    pair, smallest intermediate result first.
    """
    subscripts, output, operands = _sublists(args) if isinstance(args[0], Tensor) else _equation(args)
    terms = [
        _expand_ellipsis(labels, operand, i)
        for i, (labels, operand) in enumerate(zip(subscripts, operands, strict=True))
    ]
    hidden = tuple(range(-max((sum(isinstance(n, int) for n in t) for t in terms), default=0), 0))
    if output is None:
        letters = sorted(
            n for n in {n for t in terms for n in t if isinstance(n, str)} if _count(terms, n) == 1
        )
        result = (*hidden, *letters)
    else:
        result = tuple(m for n in output for m in (hidden if n is Ellipsis else (n,)))
    _check_output(result, terms)
    labelled = [
        _diagonal(operand, labels, i) for i, (operand, labels) in enumerate(zip(operands, terms, strict=True))
    ]
    labelled = _without_stretched(labelled, result)
    while len(labelled) > 1:
        i, j = (0, 1) if len(labelled) == 2 else _next_pair(labelled, result)
        right, left = labelled.pop(j), labelled.pop(i)
        kept = {*result, *(n for x in labelled for n in x.labels)}
        labelled.append(_contract(left, right, kept, result))
    last = _sum_out(labelled[0], set(result))
    # An index of length 1 throughout was dropped only beside a longer one, so the result has all.
    order = [last.labels.index(n) for n in result]
    return last.tensor if order == list(range(len(order))) else shape.permute(last.tensor, *order)


def _count(terms: Sequence[tuple[Label, ...]], label: Label) -> int:
    return sum(t.count(label) for t in terms)


# -- reading the subscripts --------------------------------------------------------------------


def _equation(args: Sequence[Any]) -> tuple[list[list[Any]], list[Any] | None, list[Tensor]]:
    equation, operands = args[0], args[1:]
    if not isinstance(equation, str) or not operands:
        raise ValueError("einsum(): must specify the equation string and at least one operand")
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    if "->" in output or re.search(r"\.\s+\.", equation):
        raise RuntimeError(
            f"einsum(): invalid subscript given in {equation!r}: a second arrow, or dots apart"
        )
    terms = inputs.split(",")
    if len(terms) != len(operands):
        few = "more" if len(operands) > len(terms) else "fewer"
        raise RuntimeError(
            f"einsum(): {few} operands were provided ({len(operands)}) than specified in the equation ({len(terms)})"
        )
    return [_letters(t) for t in terms], _letters(output) if arrow else None, list(operands)


def _letters(term: str) -> list[Any]:
    before, dots, after = term.partition("...")
    for character in before + after:
        if not (character.isascii() and character.isalpha()):
            raise RuntimeError(
                f"einsum(): invalid subscript given: '{character}' in '{term}'; subscripts must be in [a-zA-Z] or ..."
            )
    return [*before, *([Ellipsis] if dots else []), *after]


def _sublists(args: Sequence[Any]) -> tuple[list[list[Any]], list[Any] | None, list[Tensor]]:
    operands = list(args[0 : len(args) - len(args) % 2 : 2])
    terms = [_numbered(t) for t in args[1::2]]
    return terms, _numbered(args[-1]) if len(args) % 2 else None, operands


def _numbered(subscripts: Sequence[Any]) -> list[Any]:
    """Numbers 0 to 51 as the letters A to Z, a to z, which sort in the same order."""
    for n in subscripts:
        if n is not Ellipsis and not 0 <= int(n) < 52:
            raise ValueError(
                f"einsum(): subscripts in subscript list should be within range [0, 52), got {n}"
            )
    return [n if n is Ellipsis else chr(ord("A") + n if n < 26 else ord("a") + n - 26) for n in subscripts]


def _expand_ellipsis(labels: Sequence[Any], operand: Tensor, number: int) -> tuple[Label, ...]:
    """Labels with -1 for the last dimension that an ellipsis stands for, -2 for the one before, and so on."""
    hidden = operand.ndim - len(labels) + labels.count(Ellipsis)
    if hidden < 0 or (hidden and Ellipsis not in labels) or labels.count(Ellipsis) > 1:
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({len(labels)}) does not match the number of "
            f"dimensions ({operand.ndim}) for operand {number} of shape {list(operand.shape)}"
            + ("" if Ellipsis in labels else " and no ellipsis was given")
        )
    return tuple(m for n in labels for m in (range(-hidden, 0) if n is Ellipsis else (n,)))


def _check_output(result: tuple[Label, ...], terms: Sequence[tuple[Label, ...]]) -> None:
    for n in result:
        if result.count(n) > 1:
            raise RuntimeError(f"einsum(): output subscript {n} appears more than once in the output")
        if not _count(terms, n):
            raise RuntimeError(
                f"einsum(): output subscript {n} does not appear in the equation for any input operand"
            )


# -- one operand ---------------------------------------------------------------------------------


def _diagonal(tensor: Tensor, labels: tuple[Label, ...], number: int) -> _Labelled:
    """Each label once: the diagonal over dimensions that share one."""
    for n in dict.fromkeys(labels):
        while labels.count(n) > 1:
            first = labels.index(n)
            second = labels.index(n, first + 1)
            if tensor.shape[first] != tensor.shape[second]:
                raise RuntimeError(
                    f"einsum(): subscript {n} is repeated for operand {number} but the sizes don't match, "
                    f"{tensor.shape[second]} != {tensor.shape[first]}"
                )
            tensor = VOCABULARY.diagonal(tensor, 0, first, second)
            labels = (*labels[:first], *labels[first + 1 : second], *labels[second + 1 :], n)
    return _Labelled(tensor, labels)


def _without_stretched(operands: Sequence[_Labelled], result: tuple[Label, ...]) -> list[_Labelled]:
    """Dimensions of length 1 dropped where another operand is longer along that index.

    Of several operands also those that the result has not: there is nothing to sum, so that dtypes may differ, and
    integers stay as they are.
    """
    kept = set(result) if len(operands) > 1 else None
    sizes: dict[Label, int] = {}
    for x in operands:
        for n, size in zip(x.labels, x.tensor.shape, strict=True):
            known = sizes.setdefault(n, size)
            if known == 1:
                sizes[n] = size
            elif size not in (1, known):
                raise RuntimeError(
                    f"einsum(): operands do not broadcast with remapped shapes: subscript {n} has size {known} and "
                    f"size {size}, in {[list(x.tensor.shape) for x in operands]}"
                )
    dropped = []
    for x in operands:
        one = tuple(
            i
            for i, n in enumerate(x.labels)
            if x.tensor.shape[i] == 1 and (sizes[n] != 1 or (kept is not None and n not in kept))
        )
        if one:
            x = _Labelled(
                shape.squeeze(x.tensor, one), tuple(n for i, n in enumerate(x.labels) if i not in one)
            )
        dropped.append(x)
    return dropped


def _sum_out(x: _Labelled, kept: set[Label]) -> _Labelled:
    """Summed over the labels that nothing else has; integers become int64, as in `sum`."""
    gone = tuple(i for i, n in enumerate(x.labels) if n not in kept)
    if not gone:
        return x
    return _Labelled(reduce.sum(x.tensor, gone), tuple(n for n in x.labels if n in kept))


# -- two operands ----------------------------------------------------------------------------------


def _next_pair(operands: Sequence[_Labelled], result: tuple[Label, ...]) -> tuple[int, int]:
    """Which two to contract first: those whose result is smallest beside what it replaces.

    The greedy order of Smith and Gray, "opt_einsum", 2018.
    """
    sizes = {n: size for x in operands for n, size in zip(x.labels, x.tensor.shape, strict=True)}

    def growth(pair: tuple[int, int]) -> int:
        i, j = pair
        others = {n for k, x in enumerate(operands) if k not in pair for n in x.labels}.union(result)
        merged = others.intersection((*operands[i].labels, *operands[j].labels))
        return (
            math.prod(sizes[n] for n in merged)
            - math.prod(operands[i].tensor.shape)
            - math.prod(operands[j].tensor.shape)
        )

    return min(combinations(range(len(operands)), 2), key=growth)


def _contract(a: _Labelled, b: _Labelled, kept: set[Label], result: tuple[Label, ...]) -> _Labelled:
    """One batched matrix product over what both have: batch what is kept, contract what is not."""
    a, b = _sum_out(a, kept.union(b.labels)), _sum_out(b, kept.union(a.labels))
    shared = set(a.labels).intersection(b.labels)
    # The operand whose own indices come first in the result goes first, so that it needs no permute.
    own = next((n for n in result if n not in shared and n in (*a.labels, *b.labels)), None)
    if own in b.labels:
        a, b = b, a
    batch = [n for n in a.labels if n in shared and n in kept]
    inside = [n for n in a.labels if n in shared and n not in kept]
    rows = [n for n in a.labels if n not in shared]
    columns = [n for n in b.labels if n not in shared]
    labels = (*batch, *rows, *columns)
    if not inside:
        left = _spread(a, [*batch, *rows], after=len(columns))
        right = _spread(b, [*batch, *columns], at=len(batch), between=len(rows))
        return _Labelled(left * right, labels)
    left, right = _as_matrices(a, batch, rows, inside), _as_matrices(b, batch, inside, columns)
    if left.dtype is not right.dtype and max(left.dtype.category, right.dtype.category) < 2:
        left, right = left.long(), right.long()  # one of them is a sum
    product = matrix.matmul(left, right)
    sizes = {n: size for x in (a, b) for n, size in zip(x.labels, x.tensor.shape, strict=True)}
    wanted = tuple(sizes[n] for n in labels)
    return _Labelled(product if product.shape == wanted else shape.reshape(product, wanted), labels)


def _spread(x: _Labelled, order: Sequence[Label], after: int = 0, at: int = 0, between: int = 0) -> Tensor:
    """Dimensions in `order`, with `after` of length 1 behind them or `between` of length 1 at `at`."""
    tensor = _permuted(x, order)
    sizes = list(tensor.shape)
    wanted = (*sizes[:at], *[1] * between, *sizes[at:], *[1] * after)
    return tensor if len(wanted) == len(sizes) else shape.reshape(tensor, wanted)


def _permuted(x: _Labelled, order: Sequence[Label]) -> Tensor:
    dims = [x.labels.index(n) for n in order]
    return x.tensor if dims == list(range(len(dims))) else shape.permute(x.tensor, *dims)


def _as_matrices(
    x: _Labelled, batch: Sequence[Label], rows: Sequence[Label], columns: Sequence[Label]
) -> Tensor:
    """(*batch, prod(rows), prod(columns)); a matrix that lies transposed in memory stays so, without a copy."""
    own = [n for n in x.labels if n not in batch]
    if own[: len(columns)] == list(columns) and rows:
        return shape.transpose(_as_matrices(x, batch, columns, rows), -2, -1)
    tensor = _permuted(x, [*batch, *rows, *columns])
    if len(rows) == len(columns) == 1:
        return tensor
    lead = tuple(tensor.shape[: len(batch)])
    split = len(batch) + len(rows)
    sizes = tensor.shape
    return shape.reshape(tensor, (*lead, math.prod(sizes[len(batch) : split]), math.prod(sizes[split:])))
