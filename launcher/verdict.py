"""Which rank is at fault, and what is said about it at the end."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Sequence

from .channel import Failure


def first_failure(failures: Iterable[Failure]) -> Failure:
    """The failure that the others follow from: the earliest of a rank that did not just lose a peer.

    Where there are only victims, a peer ended cleanly while they counted on it; the first of them says so.
    """
    return min(failures, key=lambda failure: (failure.victim, failure.time, failure.ranks))


def describe(failures: Sequence[Failure]) -> str:
    """The end of the output: one line about the others, then the rank at fault and its traceback."""
    first = first_failure(failures)
    others = sorted((f for f in failures if f is not first), key=lambda failure: failure.ranks)
    lines = []
    victims = [f for f in others if f.victim]
    if victims:
        lines.append(f"{_names(victims)} lost a peer and stopped ({victims[0].error.partition(':')[0]}).")
    same = [f for f in others if not f.victim and f.error == first.error]
    if same:
        lines.append(f"{_names(same)} failed with the same error.")
    for failure in others:
        if not failure.victim and failure.error != first.error:
            at = f" at {failure.where}" if failure.where else ""
            lines.append(f"{_names([failure])} failed too{at}: {failure.error}")
    lines.append(f"{_names([first])} failed ({first.reason}); all ranks were ended.")
    text = "".join(f"ddprun: {line}\n" for line in lines) + first.text
    return text if text.endswith("\n") else text + "\n"


def describe_signal(number: signal.Signals, failures: Iterable[Failure]) -> str:
    """The end of the output of a job that a signal to the launcher ended: where each rank was."""
    how = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}.get(number, "hung up")
    lines = [
        f"{_names([failure])} was at {failure.where} ({failure.error.partition(':')[0]})"
        for failure in sorted(failures, key=lambda failure: failure.ranks)
        if failure.where
    ]
    lines.append(f"{how} by {number.name}; all ranks were ended.")
    return "".join(f"ddprun: {line}\n" for line in lines)


def ended_silently(ranks: range, status: int | None, crash_text: str) -> Failure:
    """The failure of a process that ended without a word: `status` as in `Process.ended`, None if unknown."""
    if status is None:
        reason = "ended before its script was finished"
        text = "It ended without an exception: by os._exit, by a signal, or inside native code.\n"
    elif status < 0:
        name = signal.Signals(-status).name
        reason = f"killed by {name}"
        text = f"It left no traceback: the process was killed by {name}.\n"
        if name == "SIGKILL":
            text += "The kernel does that when memory runs out (see dmesg), and so do Slurm and containers.\n"
    else:
        reason = f"exit code {status}"
        text = (
            "It ended without an exception, before its script was finished: by os._exit or in native code.\n"
        )
    return Failure(tuple(ranks), time.monotonic(), reason, reason, crash_text or text)


def mpiexec_failed(status: int, reported: int, wanted: int) -> Failure:
    """The failure of mpiexec itself, when `reported` of `wanted` processes had begun."""
    how = f"exit code {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
    reason = f"mpiexec: {how}"
    text = f"{reported} of {wanted} processes had begun. What mpiexec says of it is above.\n"
    return Failure((), time.monotonic(), reason, reason, text)


def _names(failures: Sequence[Failure]) -> str:
    ranks = sorted({rank for failure in failures for rank in failure.ranks})
    if not ranks:
        return "a process without ranks"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:8]))}{', ...' if len(ranks) > 8 else ''}"
