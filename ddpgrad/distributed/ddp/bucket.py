"""The layout of buckets: which gradients are reduced together, and their places in flat memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20
FIRST_BYTES = 1 * MIB
"""Cap of the first bucket: small, so that communication begins early in backward."""

_USUAL_BYTES = 25 * MIB
# The last bucket has no backward left to hide behind: its share of all gradients bounds what is exposed.
_AT_LEAST = 32
_TAPER = 4

# Gradients start at multiples of this many bytes, so that vector loads of each are aligned.
_ALIGN = 64


def usual_cap(total_bytes: int) -> int:
    """The cap where the user gives none: 25 MiB, or less for 32 buckets of a MiB or more."""
    return min(_USUAL_BYTES, max(FIRST_BYTES, total_bytes // _AT_LEAST))


@dataclass(frozen=True)
class Gradient:
    """The gradient of one parameter, as `plan` sees it. key: its dtype and device."""

    name: str
    size: int
    itemsize: int
    key: Any


@dataclass(frozen=True)
class Layout:
    """One bucket: parameters by index, the offset of each in elements, and the bucket's length."""

    indices: tuple[int, ...]
    offsets: tuple[int, ...]
    length: int
    key: Any


def plan(
    gradients: Sequence[Gradient], order: Sequence[int], cap_bytes: int, first_bytes: int = FIRST_BYTES
) -> list[Layout]:
    """Deal the gradients, in `order`, to buckets of one dtype and device each.

    A bucket is closed when it has reached `cap_bytes` (the first of each dtype and device:
    `first_bytes`), or a quarter of what is left to deal, but not for less than `first_bytes`: so
    the last ones, which have little of backward to hide behind, are small. Buckets are in the order in which
    they were closed, as PyTorch's are.
    """
    if sorted(order) != list(range(len(gradients))):
        raise ValueError(f"order must name each of the {len(gradients)} gradients once, got {list(order)}")
    open_: dict[Any, list[int]] = {}
    bytes_: dict[Any, int] = {}
    closed: dict[Any, int] = {}
    rest: dict[Any, int] = {}
    for g in gradients:
        rest[g.key] = rest.get(g.key, 0) + g.size * g.itemsize
    buckets: list[Layout] = []
    for i in order:
        g = gradients[i]
        open_.setdefault(g.key, []).append(i)
        bytes_[g.key] = bytes_.get(g.key, 0) + g.size * g.itemsize
        rest[g.key] -= g.size * g.itemsize
        limit = min(first_bytes, cap_bytes) if not closed.get(g.key) else cap_bytes
        limit = min(limit, max(first_bytes, (rest[g.key] + bytes_[g.key]) // _TAPER))
        if bytes_[g.key] >= limit:
            buckets.append(_lay_out(gradients, open_.pop(g.key)))
            bytes_[g.key] = 0
            closed[g.key] = closed.get(g.key, 0) + 1
    buckets += [_lay_out(gradients, indices) for indices in open_.values()]
    return buckets


def _lay_out(gradients: Sequence[Gradient], indices: Sequence[int]) -> Layout:
    offsets, end = [], 0
    first = gradients[indices[0]]
    step = max(1, _ALIGN // first.itemsize)
    for i in indices:
        offsets.append(end)
        end += -(-gradients[i].size // step) * step
    return Layout(tuple(indices), tuple(offsets), end, first.key)
