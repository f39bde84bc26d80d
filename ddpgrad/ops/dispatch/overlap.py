"""Memory that an operation both writes to and reads from: refused where a read could find what was written before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...backend.elementary.shape import address_of
from ...core.tensor import Tensor

READS_ANY_PLACE = frozenset({
    "cat", "cross", "gather", "index_add", "index_copy", "index_put", "index_reduce", "index_select", "masked_select", "put",
    "scatter", "scatter_add", "scatter_reduce", "take", "kthvalue", "linalg_cross", "take_along_dim",
})  # fmt: skip
"""Functions that may not read even exactly the elements that they write: the order of both is not the same."""


def refuse_overlap(name: str, target: Tensor, given: Iterable[Any], region: Any = None) -> None:
    """`RuntimeError` where function `name` writes to `target` and reads some of the same elements through one of `given`.

    given: its other arguments, of which Tensors count, also those in tuples and lists. To read exactly what is
    written is allowed, but for `READS_ANY_PLACE`. region: the raw array that is written, if that is a part of
    `target`. As in PyTorch tensors with gaps between their elements are not looked into.
    """
    versions = target._versions
    for value in given:
        if isinstance(value, Tensor):
            # Tensors that share memory share the counter of writes to it: others need no second look.
            if value._versions is versions and (value is not target or name in READS_ANY_PLACE):
                found = _overlap(target._array if region is None else region, value._array)
                if found == "partial" or (found == "full" and name in READS_ANY_PLACE):
                    raise RuntimeError(
                        f"{name}(): unsupported operation: some elements of the input tensor and the written-to tensor "
                        "refer to a single memory location. Please clone() the tensor before performing the operation."
                    )
        elif value.__class__ is tuple or value.__class__ is list:
            refuse_overlap(name, target, value, region)


def _overlap(first: Any, second: Any) -> str:
    """How raw arrays without gaps share memory: "full", "partial" or "none" (also for arrays with gaps)."""
    if not (first.size and second.size and _is_dense(first) and _is_dense(second)):
        return "none"
    start, other = address_of(first), address_of(second)
    end, other_end = start + first.nbytes, other + second.nbytes
    if start == other and end == other_end and _steps(first) == _steps(second):
        return "full"
    return "partial" if start < other_end and other < end else "none"


def _steps(array: Any) -> list[tuple[int, int]]:
    """(size, stride) of the dimensions along which there is more than one element."""
    return [(n, step) for n, step in zip(array.shape, array.strides, strict=True) if n != 1]


def _is_dense(array: Any) -> bool:
    """Whether the elements lie side by side, each in a place of its own, in whatever order of dimensions."""
    if array.flags.c_contiguous:
        return True
    expected = array.itemsize
    for step, n in sorted((step, n) for n, step in _steps(array)):
        if step != expected:
            return False
        expected *= n
    return True
