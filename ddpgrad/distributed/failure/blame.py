"""Which rank is at fault, and what is said about it at the end."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .channel import Failure
from .phase import main_stack, phase_of
from .watchdog import Progress, Stall

MAX_LINES = 25
"""How long the block is that ends the output of a failed job."""

_MAX_OTHERS = 4


def first_failure(failures: Iterable[Failure]) -> Failure:
    """The failure that the others follow from: the earliest of a rank that did not just lose a peer.

    Where there are only victims, a peer ended cleanly while they counted on it; the first of them says so.
    """
    return min(failures, key=lambda failure: (failure.victim, failure.time, failure.ranks))


def describe(failures: Sequence[Failure], logs: Path | None = None, speaker: str = "ddprun") -> str:
    """The end of the output: one line about the others, then the rank at fault and its traceback.

    speaker: who says it, at the begin of each line of its own.
    """
    first = first_failure(failures)
    others = sorted((f for f in failures if f is not first), key=lambda failure: failure.ranks)
    lines = []
    victims = [f for f in others if f.victim]
    if victims:
        what = "lost a peer and stopped" if victims[0].cause == "error" else "stopped, too"
        lines.append(f"{_names(victims)} {what} ({victims[0].error.partition(':')[0]}).")
    same = [f for f in others if not f.victim and f.error == first.error]
    if same:
        lines.append(f"{_names(same)} failed with the same error.")
    different = [f for f in others if not f.victim and f.error != first.error]
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
    head = "".join(f"{speaker}: {line}\n" for line in lines)
    return head + _last_lines(first.text, MAX_LINES - len(lines), first.error)


def _context(failure: Failure) -> str:
    """Where in the run a rank was, as far as that is known."""
    words = []
    if failure.step or (failure.step is not None and failure.error != failure.reason):
        # Of one that died without a word only its last pulse is known.
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
    """At most `limit` lines of `text`: of a long traceback its end, which is what matters, and the `error`."""
    lines = text.splitlines()
    if len(lines) > limit:
        # A message of many lines begins with what it is about: which worker read which sample, say.
        end = lines[2 - limit :]
        begin = lines[0] if any(error in line for line in end) else error
        lines = [begin, f"  ... {len(lines) - limit + 1} lines left out ...", *end]
    return "".join(f"{line}\n" for line in lines)


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


def ended_silently(
    ranks: range, status: int | None, crash_text: str, place: Progress | None = None
) -> Failure:
    """The failure of a process that ended without a word: `status` as in `Process.ended`, None if unknown.

    place: what it last said of how far it had come.
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
        step=place.steps if place else None,
        collective=place.last[-1] if place and place.last else "",
    )


def stalled(stall: Stall, progress: Mapping[int, Progress], dumps: Mapping[int, str]) -> Failure:
    """The failure of the rank that holds up the others, given every rank's stacks.

    Of the suspects it is the first that is not itself waiting in a collective.
    """
    stacks = {rank: main_stack(dumps.get(rank, "")) for rank in stall.ranks}
    waits = {
        rank: stack is not None and "collective" in phase_of(stack.frames) for rank, stack in stacks.items()
    }
    rank = next((rank for rank in stall.ranks if not waits[rank]), stall.ranks[0])
    stack, place = stacks[rank], progress.get(rank)
    return Failure(
        (rank,),
        stall.at,
        "stalled",
        stall.reason,
        f"{stall.reason}\n{stack.text if stack else 'It did not answer when it was asked for its stack.'}",
        where=stack.where if stack else "",
        cause="stall",
        phase=phase_of(stack.frames) if stack else "",
        step=place.steps if place else None,
        collective=place.last[-1] if place and place.last else "",
    )


def orphaned(ranks: range) -> Failure:
    """The failure of a process whose agent ended it, because it was left alone."""
    reason = "abandoned by what had started it"
    text = "mpiexec's or srun's process on its host is gone, and says above why, if it could.\n"
    return Failure(tuple(ranks), time.monotonic(), reason, reason, text)


def hosts_lost(
    lost: Mapping[str, Sequence[int]], failures: Sequence[Failure], progress: Mapping[int, Progress]
) -> list[Failure]:
    """The failures of a job that lost hosts, each given with its ranks: that loss, and what followed from it."""
    ranks = tuple(sorted(rank for there in lost.values() for rank in there))
    reason = f"host {', '.join(lost)} was lost" if len(lost) == 1 else f"hosts {', '.join(lost)} were lost"
    text = "Nothing there has said how it ended: it is off, cut off, or everything there was killed.\n"
    places = [progress[rank] for rank in ranks if rank in progress]
    behind = min(places, key=lambda place: place.steps, default=None)
    loss = Failure(
        ranks,
        min(failure.time for failure in failures),
        reason,
        reason,
        text,
        step=behind.steps if behind else None,
        collective=behind.last[-1] if behind and behind.last else "",
    )
    # Of those ranks there is no more to say, and the others have lost their peers.
    return [loss, *(replace(failure, victim=True) for failure in failures if not {*failure.ranks} & {*ranks})]


def starter_failed(name: str, status: int, reported: int, wanted: int) -> Failure:
    """The failure of mpiexec or srun itself, when `reported` of `wanted` processes had begun."""
    how = f"exit code {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
    reason = f"{name}: {how}"
    text = f"{reported} of {wanted} processes had begun. What {name} says of it is above.\n"
    return Failure((), time.monotonic(), reason, reason, text)


def _names(failures: Sequence[Failure]) -> str:
    ranks = sorted({rank for failure in failures for rank in failure.ranks})
    if not ranks:
        return "a process without ranks"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:8]))}{', ...' if len(ranks) > 8 else ''}"
