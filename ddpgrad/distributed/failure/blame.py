"""Decides which rank is at fault, and describes the failures of ranks that cannot report them."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..protocol.guard import named
from .channel import Failure
from .phase import WAITS_FOR_THREADS, Stack, main_stack, phase_of
from .watchdog import Progress, Stall

_MOST_LINES = 8


def first_failure(failures: Iterable[Failure]) -> Failure:
    """The failure that caused the others: the earliest that is not secondary.

    If all are secondary, a peer ended cleanly while they waited for it; the first of them reports that.
    """
    return min(failures, key=lambda failure: (failure.secondary, failure.time, failure.ranks))


def ended_silently(
    ranks: range, status: int | None, crash_text: str, progress: Progress | None = None
) -> Failure:
    """The failure of a process that ended without a report.

    status: as in `child_process.exit_status`, None if unknown; progress: its last known progress.
    """
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
    stack = main_stack(crash_text)
    return Failure(
        tuple(ranks),
        time.monotonic(),
        reason,
        reason,
        crash_text or text,
        where=stack.where if stack else "",
        phase=phase_of(stack.frames) if stack else "",
        step=progress.steps if progress else None,
        collective=progress.last[-1] if progress and progress.last else "",
    )


def suspect(
    stall: Stall, progress: Mapping[int, Progress], dumps: Mapping[int, str]
) -> tuple[int, Stack | None]:
    """The rank that holds up the others, given the stacks of every rank, and its own.

    It is the first suspect that does not wait in a collective itself; of ranks in one process, whose stacks come
    together, that which runs.
    """
    stacks = {rank: main_stack(dumps.get(rank, "")) for rank in stall.ranks}
    waits = {
        rank: stack is not None and "collective" in phase_of(stack.frames) for rank, stack in stacks.items()
    }
    suspects = sorted(stall.ranks, key=lambda rank: rank not in progress or not progress[rank].turn)
    rank = next((rank for rank in suspects if not waits[rank]), suspects[0])
    return rank, stacks[rank]


def stalled(
    stall: Stall, progress: Mapping[int, Progress], dumps: Mapping[int, str], failures: Iterable[Failure] = ()
) -> Failure:
    """The failure of the rank that holds up the others. failures: what ranks have reported that waited in vain."""
    rank, stack = suspect(stall, progress, dumps)
    known = progress.get(rank)
    own = next((failure for failure in failures if failure.blames and rank in failure.ranks), None)
    if own is not None:
        lines = [stall.reason]
        where, phase = own.where, own.phase
    else:
        lines = [stall.reason, stack.text if stack else "It did not answer when it was asked for its stack."]
        where, phase = (stack.where, phase_of(stack.frames)) if stack else ("", "")
    if own is not None or "collective" in phase:
        lines += _all_wait(progress)
    if waits_for := stall.waits_for.get(rank, known.waits_for if known else ""):
        lines.insert(1, f"It waits for {waits_for}")
    if re.search(WAITS_FOR_THREADS, dumps.get(rank, "")):
        lines.insert(
            1, "Its script has ended; a thread that the script started, and made no daemon, goes on."
        )
    return Failure(
        (rank,),
        stall.at,
        "stalled",
        stall.reason,
        "\n".join(lines),
        where=where,
        cause="stall",
        phase=phase,
        step=known.steps if known else None,
        collective=known.last[-1] if known and known.last else "",
    )


def _all_wait(progress: Mapping[int, Progress]) -> list[str]:
    """Lines about what each rank has begun, where all wait."""
    begun: dict[str, list[int | str]] = {}
    for rank, known in sorted(progress.items()):
        begun.setdefault(known.last[-1] if known.last else "no collective yet", []).append(rank)
    lines = [f"  {named(ranks[:8] + ['…'] * (len(ranks) > 8))}: {what}" for what, ranks in begun.items()]
    return [
        "It waits itself. What the ranks began last:",
        *lines[:_MOST_LINES],
        *["  …"] * (len(lines) > _MOST_LINES),
        "All ranks must call the same collectives, of all groups, and send and receive, in an order that fits.",
    ]


def orphaned(ranks: range) -> Failure:
    """The failure of a process that its agent ended because the agent's own parent was gone."""
    reason = "left without a parent process"
    text = "The process of mpiexec or srun on its host is gone; its messages are above, if it left any.\n"
    return Failure(tuple(ranks), time.monotonic(), reason, reason, text)


def hosts_lost(
    lost: Mapping[str, Sequence[int]], failures: Sequence[Failure], progress: Mapping[int, Progress]
) -> list[Failure]:
    """The failures of a job that lost hosts, each given with its ranks: first the loss, then its consequences."""
    ranks = tuple(sorted(rank for there in lost.values() for rank in there))
    reason = f"host {', '.join(lost)} was lost" if len(lost) == 1 else f"hosts {', '.join(lost)} were lost"
    text = (
        "No process there reported its end: the host is off or cut off, or all processes there were killed.\n"
    )
    known = [progress[rank] for rank in ranks if rank in progress]
    behind = min(known, key=lambda one: one.steps, default=None)
    loss = Failure(
        ranks,
        min(failure.time for failure in failures),
        reason,
        reason,
        text,
        step=behind.steps if behind else None,
        collective=behind.last[-1] if behind and behind.last else "",
    )
    # The loss says all about its ranks; the other ranks have lost their peers.
    return [
        loss,
        *(replace(failure, secondary=True) for failure in failures if not {*failure.ranks} & {*ranks}),
    ]


def absent(ranks: range, ended_at: str, places: Mapping[int, str]) -> Failure:
    """The failure of a process that has ended, and so cannot come to the meeting in which others wait.

    ended_at: 'file:line', if it is known; places: by the rank that waits, where it does.
    """
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
    waiting = "".join(f"  rank {rank}: {where}\n" for rank, where in sorted(places.items()))
    return Failure(
        tuple(ranks),
        time.monotonic(),
        "ended while others wait to meet it",
        f"{who} ended while others wait to meet it",
        f"The program of {who} has ended{' at ' + ended_at if ended_at else ''}. Others wait to meet it:\n{waiting}"
        "Every rank calls init_process_group, or none does.\n",
        where=ended_at,
    )


def starter_failed(name: str, status: int, reported: int, wanted: int) -> Failure:
    """The failure of mpiexec or srun itself, when `reported` of `wanted` processes had begun."""
    how = f"exit code {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
    reason = f"{name}: {how}"
    text = f"{reported} of {wanted} processes had begun. The messages of {name} are above.\n"
    return Failure((), time.monotonic(), reason, reason, text)
