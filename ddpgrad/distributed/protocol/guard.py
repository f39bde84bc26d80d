"""Signatures of collectives, which ranks compare before data moves, and the errors where they differ or fail.

A `Signature` describes one collective as one rank sees it. Transports compare its 64-bit
digest; the words behind it travel only to be read by people. Two ranks agree when the
collective, its options, dtype and shape are the same, and what names it:

- the label, if one is given (DDP gives the names of the parameters in a bucket);
- for sums without a label, the line that called. Two all-reduces of one size, swapped on one
  rank, would otherwise give wrong numbers in silence. Programs that call one sum from
  different lines on purpose give both calls the same label.

Broadcasts, gathers and barriers may come from different lines on different ranks: the usual
`if rank == 0: prepare(); barrier()` is right.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import TypeVar

import numpy as np

from ...core.environment import Launch
from ...core.errors import DistributedError, MismatchError, RankFailedError, StallError

ENDED_WELL = "has finished its program"
"""The cause of an error where a rank ended too early, without a failure of its own."""

_PACKAGE = str(Path(__file__).absolute().parents[2]) + os.sep
_INSIDE: dict[str, bool] = {}

_E = TypeVar("_E", bound=DistributedError)

_SEPARATOR = "\x1f"
_FIELDS = ("collective", "dtype", "shape", "label", "line")

# Training loops repeat a few signatures; a program with ever new shapes must not fill memory.
_KNOWN: dict[tuple, Signature] = {}
_KNOWN_LIMIT = 4096
_CODES: dict[int, CodeType] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """One collective as one rank sees it.

    `digest` is equal, and never 0, where ranks agree; `fields` are the words for messages
    (collective, dtype, shape, label, line); `encoded` is what goes through a transport.
    """

    digest: int
    fields: tuple[str, str, str, str, str]
    encoded: bytes

    def __str__(self) -> str:
        return describe(self.fields)


def signature(
    collective: str, dtype: np.dtype | None, shape: tuple[int, ...], label: str = "", *, sums: bool = False
) -> Signature:
    """The signature of a collective that user code is calling now, through the caller of this function.

    `collective` names it with its options, as in "all_reduce(sum)"; `sums` says that ranks
    must also agree on the calling line unless there is a label. Takes half a microsecond.
    """
    frame = sys._getframe(2)  # whoever called the communicator
    while True:
        code = frame.f_code
        inside = _INSIDE.get(code.co_filename)
        if inside is None:
            inside = _is_inside(code.co_filename)
        if not inside or frame.f_back is None:
            break
        frame = frame.f_back
    # An instruction is found faster than its line is counted out.
    key = (collective, dtype, shape, label, id(code), frame.f_lasti)
    known = _KNOWN.get(key)
    if known is None:
        if len(_KNOWN) >= _KNOWN_LIMIT:
            _KNOWN.clear()
            _CODES.clear()
        _CODES[id(code)] = code  # no other code gets this number meanwhile
        known = _make(collective, dtype, shape, label, sums, code.co_filename, frame.f_lineno)
        _KNOWN[key] = known
    return known


def _is_inside(file: str) -> bool:
    """True for the files of this package, whose lines mean nothing to the user."""
    if len(_INSIDE) >= _KNOWN_LIMIT:
        _INSIDE.clear()
    inside = _INSIDE[file] = file.startswith(_PACKAGE)
    return inside


def _make(
    collective: str,
    dtype: np.dtype | None,
    shape: tuple[int, ...],
    label: str,
    sums: bool,
    file: str,
    line: int,
) -> Signature:
    dtype_name = "" if dtype is None else dtype.name
    # Ranks may reach one file through different folders; its name and line are the same.
    named_by = label if label or not sums else f"{os.path.basename(file)}:{line}"
    identity = repr((collective, dtype_name, shape, named_by)).encode()
    digest = int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "little") or 1
    fields = (
        collective,
        dtype_name,
        _clip(str(list(shape)), 80) if dtype is not None else "",
        _clip(label, 180),
        _clip(f"{file}:{line}", 140, keep_end=True),
    )
    return Signature(digest, fields, encode(fields))


def _clip(text: str, limit: int, keep_end: bool = False) -> str:
    """`text` cut to `limit` bytes of UTF-8: transports give records a fixed size."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    kept = data[3 - limit :] if keep_end else data[: limit - 3]
    half = kept.decode("utf-8", "ignore")
    return f"…{half}" if keep_end else f"{half}…"


def encode(fields: Sequence[str]) -> bytes:
    """The fields of a signature as they go through a transport."""
    return _SEPARATOR.join(fields).encode("utf-8", "replace")


def decode(encoded: bytes) -> tuple[str, ...]:
    """The fields of a signature that came through a transport (empty: none was ever written)."""
    if not encoded:
        return ()
    return tuple(encoded.decode("utf-8", "replace").split(_SEPARATOR))


def describe(fields: Sequence[str]) -> str:
    """One line for people: `all_reduce(sum) of float32[1024] 'fc1.weight' at train.py:31`."""
    if len(fields) < len(_FIELDS):
        return "no collective of this group yet"
    collective, dtype, shape, label, site = fields[:5]
    words = [collective]
    if dtype:
        words.append(f"of {dtype}{shape}")
    if label:
        words.append(f"'{label}'")
    words.append(f"at {site}")
    return " ".join(words)


def mismatch(records: Mapping[int, tuple[int, Sequence[str]]], number: int) -> MismatchError:
    """The error for collective `number` (from 1), given every rank's digest and fields."""
    counts = Counter(digest for digest, _ in records.values())
    most = max(counts.values())
    usual = next(digest for digest, _ in records.values() if counts[digest] == most)
    first = next(rank for rank in sorted(records) if records[rank][0] != usual)
    expected = next(fields for digest, fields in records.values() if digest == usual)
    lines = [
        f"the ranks are about to do different things in collective number {number}; "
        f"rank {first} is the first that differs ({_difference(expected, records[first][1])}):"
    ]
    lines += _listing({rank: fields for rank, (_, fields) in records.items()})
    lines.append(
        "No data was exchanged. All ranks must call the same collectives in the same order, with the same "
        f"dtype and shape; compare the lines above, beginning with rank {first}. "
        "(Sums that are meant to meet from different lines need the same label.)"
    )
    return blaming(MismatchError("\n".join(lines)), [first])


def _difference(expected: Sequence[str], got: Sequence[str]) -> str:
    for name, wanted, found in zip(_FIELDS, expected, got, strict=False):
        if wanted != found:
            return f"{name} {found or 'none'} instead of {wanted or 'none'}"
    return "other options"


_UNEVEN = (
    "All ranks must call the same collectives. Where they have different numbers of batches: launcher.prepare(loader) deals "
    "them out alike, and within `with model.join():` ranks without a batch take part in the others' steps."
)


def rank_failed(ranks: Collection[int], what: str, waiting: Mapping[int, Sequence[str]]) -> RankFailedError:
    """The error for ranks that wait for `ranks`, which `what` ("died …", "raised …")."""
    # Those at fault may have begun the collective too, asynchronously, before they failed.
    waiting = {rank: fields for rank, fields in waiting.items() if rank not in ranks}
    lines = [f"{in_short(ranks)} {what}. Others wait:", *_listing(waiting)]
    if what == ENDED_WELL:
        lines.append(_UNEVEN)
    return blaming(RankFailedError("\n".join(lines)), ranks)


def stalled(
    missing: Mapping[int, Sequence[str]], waiting: Mapping[int, Sequence[str]], seconds: float
) -> StallError:
    """The error for a collective that did not complete in time: who is missing, who waits."""
    late = f"{in_short(missing)} did not arrive within {seconds:g} seconds: Timed out waiting {seconds * 1e3:g}ms."
    lines = [late, "Waiting:", *_listing(waiting)]
    lines += ["The last that the missing ranks began:", *_listing(missing)]
    lines.append(
        "Look at what the missing ranks do after that line (an endless loop, input, a lock). If they only "
        "need longer, raise the limit: init_process_group(timeout=…) or DDPGRAD_TIMEOUT=seconds."
    )
    return blaming(StallError("\n".join(lines)), missing)


def not_come(launch: Launch, absent: Iterable[int], seconds: float) -> StallError:
    """The error for processes `absent` of `launch`, of the world or of a group, that the others have met in vain."""
    missing, everyone = (
        [launch.world_rank(rank) for proc in procs for rank in launch.block(proc)]
        for procs in (absent, range(launch.procs))
    )
    if launch.group is None:
        what, advice, call = "init_process_group", "Every rank calls it, or none does", "init_process_group"
    else:
        what = f"new_group of {in_short(everyone)}"
        advice = (
            "All these ranks must call it, in the same order as other groups; without use_local_synchronization, "
            "every rank of the world"
        )
        call = "new_group"
    late = f"{in_short(missing)} did not come to {what} within {seconds:g} seconds. {advice}."
    return blaming(
        StallError(
            f"{late} If they only need longer, raise the limit: {call}(timeout=…) or DDPGRAD_TIMEOUT=seconds."
        ),
        missing,
    )


def blaming(error: _E, ranks: Iterable[int]) -> _E:
    """`error`, saying that `ranks` are at fault."""
    error.ranks = tuple(sorted(ranks))
    return error


def lost(messages: Sequence[tuple[int, int, Sequence[str]]]) -> str:
    """What to say of messages that were never received: of each the target, the source and the sender's call."""
    lines = [
        f"  to rank {target} from rank {source}: {describe(fields)}" for target, source, fields in messages
    ]
    more = [f"  and {len(lines) - 3} more"] if len(lines) > 3 else []
    return "\n".join(
        [
            "messages were sent that nobody received; each send needs a recv in the program of its target:",
            *lines[:3],
            *more,
        ]
    )


def deadlock(waiting: Mapping[int, Sequence[str]], seconds: float = 0.0) -> StallError:
    """The error for ranks of one process that all wait for something none of them will do, or has done in `seconds`."""
    what = f"has gone on within {seconds:g} seconds" if seconds else "can go on"
    listing = _listing(waiting)
    lines = [f"all ranks of this process wait, and none {what}:", *listing]
    groups = " These are of different groups." if len(listing) == 1 and len(waiting) > 1 else ""
    lines.append(f"All ranks must call the same collectives, of all groups, in the same order.{groups}")
    return StallError("\n".join(lines))


def _listing(fields: Mapping[int, Sequence[str]]) -> list[str]:
    """One line per distinct collective, with the ranks that call it."""
    groups: dict[str, list[int]] = {}
    for rank in sorted(fields):
        groups.setdefault(describe(fields[rank]), []).append(rank)
    return [f"  {in_short(ranks)}: {text}" for text, ranks in groups.items()]


def named(ranks: Sequence[int | str]) -> str:
    """`rank 3`, `ranks 0, 1`: each by itself."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def in_short(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
    plural = len(spans) > 1 or (bool(spans) and spans[0][0] != spans[0][1])
    return f"rank{'s' if plural else ''} {text}"
