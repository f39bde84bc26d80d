"""Decisions that all ranks make alike, and work that rank 0 does for all or before all.

A rank that does not come is named when the group's limit has passed, and one that calls something else at once, with
its line, as for any collective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import numpy as np

from ..core.errors import RankFailedError
from ..core.tensor import Tensor
from .objects import pack, unpack
from .process_group import ProcessGroup, resolve
from .protocol.guard import blaming

T = TypeVar("T")


def agree(
    flag: int | Tensor, how: Literal["any", "all"] = "any", group: ProcessGroup | None = None, label: str = ""
) -> int:
    """One answer on all ranks, from the `flag` of each: a bool or an int, or a tensor with one of these.

        if agree(out_of_time): break        # one rank that says so is enough

    how: "any": True where some rank says True; of ints the largest. "all": True where every rank does; of ints the
    least. All ranks call it from the same line, or with one `label`, and with flags of one kind, else MismatchError.
    """
    if how not in ("any", "all"):
        raise ValueError(f'agree: how must be "any" or "all", got {how!r}')
    value = flag.item() if isinstance(flag, (Tensor, np.generic)) else flag
    if not isinstance(value, int):
        raise TypeError(f"agree: expected a bool or an int, got {type(value).__name__}")
    told = np.array(value, np.uint8 if isinstance(value, bool) else np.int64)
    resolve(group).communicator.all_reduce(told, "max" if how == "any" else "min", label)
    return type(value)(told)


def on_rank_zero(fn: Callable[[], T], group: ProcessGroup | None = None) -> T:
    """The result of `fn()`, which only the group's rank 0 calls, on all ranks.

    It may be what `all_gather_object` takes. Where `fn` raises, rank 0 raises that, and the others RankFailedError, which
    tells of it. `fn` calls no collectives of the group.
    """
    g = resolve(group)
    if g.rank() != 0:
        return unpack(_heard(g, "on_rank_zero"))
    with _telling_of_errors(g, "on_rank_zero"):
        result = fn()
        packed = pack(result)
    _tell(g, "on_rank_zero", packed)
    return result


@contextmanager
def rank_zero_first(group: ProcessGroup | None = None) -> Iterator[None]:
    """Around what the group's rank 0 does first and the other ranks do after it, such as filling a cache and reading it.

    Where rank 0's block raises, the others raise RankFailedError instead of beginning theirs. The blocks call no collectives
    of the group. Nobody waits at the end.
    """
    g = resolve(group)
    if g.rank() != 0:
        _heard(g, "rank_zero_first")
        yield
        return
    with _telling_of_errors(g, "rank_zero_first"):
        yield
    _tell(g, "rank_zero_first", None)


def _tell(g: ProcessGroup, caller: str, content: object, failed: bool = False) -> None:
    g.communicator.broadcast_object([failed, content], label=caller)


@contextmanager
def _telling_of_errors(g: ProcessGroup, caller: str) -> Iterator[None]:
    """Whatever is raised within, the other ranks are told of; it goes on."""
    try:
        yield
    except BaseException as error:
        _tell(g, caller, f"{type(error).__name__}: {error}", failed=True)
        raise


def _heard(g: ProcessGroup, caller: str) -> Any:
    """What rank 0 tells. RankFailedError where it failed."""
    failed, content = g.communicator.broadcast_object(label=caller)
    if failed:
        first = g.ranks[0]
        raise blaming(RankFailedError(f"rank {first} raised within {caller}: {content}"), [first])
    return content
