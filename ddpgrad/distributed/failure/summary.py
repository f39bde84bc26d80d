"""The last lines of the output of a failed job: the other ranks in short, then the rank at fault and its traceback."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

from .blame import first_failure
from .channel import Failure

MAX_LINES = 25
"""The length of these lines."""

_MAX_OTHERS = 4


def describe(failures: Sequence[Failure], logs: Path | None = None, program: str = "ddprun") -> str:
    """The summary of `failures`. Each line of its own begins with the name of the `program` that prints it."""
    first = first_failure(failures)
    others = sorted((f for f in failures if f is not first), key=lambda failure: failure.ranks)
    lines = []
    secondary = [f for f in others if f.secondary]
    if secondary:
        what = "lost a peer and stopped" if secondary[0].cause == "error" else "stopped, too"
        lines.append(f"{_names(secondary)} {what} ({secondary[0].error.partition(':')[0]}).")
    same = [f for f in others if not f.secondary and f.error == first.error]
    if same:
        lines.append(f"{_names(same)} failed with the same error.")
    different = [f for f in others if not f.secondary and f.error != first.error]
    for failure in different[:_MAX_OTHERS]:
        at = f" at {failure.where}" if failure.where else ""
        lines.append(f"{_names([failure])} failed too{at}: {failure.error}")
    if more := different[_MAX_OTHERS:]:
        lines.append(f"{_names(more)} failed too.")
    if context := _context(first):
        lines.append(f"{_names([first])} {context}.")
    lines.append(f"{_names([first])} failed ({first.reason}); all ranks were ended.")
    if logs is not None:
        lines.insert(0, f"the output of all ranks, their stacks and last collectives are in {logs}")
    head = "".join(f"{program}: {line}\n" for line in lines)
    return head + _last_lines(first.text, MAX_LINES - len(lines), first.error)


def describe_signal(number: signal.Signals, failures: Iterable[Failure]) -> str:
    """The summary of a job that a signal to the launcher ended: the place of each rank."""
    names = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
    how = names.get(number, "ended")
    lines = [
        f"{_names([failure])} was at {failure.where} ({failure.error.partition(':')[0]})"
        for failure in sorted(failures, key=lambda failure: failure.ranks)
        if failure.where
    ]
    lines.append(f"{how} by {number.name}; all ranks were ended.")
    return "".join(f"ddprun: {line}\n" for line in lines)


def _context(failure: Failure) -> str:
    """The known place of a rank in its run: step, phase, line, last collective."""
    words = []
    if failure.step or (failure.step is not None and failure.error != failure.reason):
        # A process that died without a report has finished at least the steps of its last heartbeat.
        least = "at least " if failure.error == failure.reason else ""
        words.append(f"had finished {least}{failure.step} optimizer step{'s' * (failure.step != 1)}")
    if failure.phase:
        words.append(f"was in {failure.phase}")
    if failure.where:
        words.append(f"at {failure.where}")
    if failure.collective:
        words.append(f"last began {failure.collective}")
    return ", ".join(words)


def _last_lines(text: str, limit: int, error: str) -> str:
    """At most `limit` lines of `text`: of a long traceback the end, which matters most, and the `error`."""
    lines = text.splitlines()
    if len(lines) > limit:
        # The first line of a long message names the subject, such as the worker and its sample.
        end = lines[2 - limit :]
        begin = lines[0] if any(error in line for line in end) else error
        lines = [begin, f"  ... {len(lines) - limit + 1} lines left out ...", *end]
    return "".join(f"{line}\n" for line in lines)


def _names(failures: Sequence[Failure]) -> str:
    ranks = sorted({rank for failure in failures for rank in failure.ranks})
    if not ranks:
        return "a process without ranks"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:8]))}{', ...' if len(ranks) > 8 else ''}"
