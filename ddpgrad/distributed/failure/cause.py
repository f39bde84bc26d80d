"""Turns the exception that ended a rank into the Failure that the launcher gets."""

from __future__ import annotations

import bdb
import re
import time
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from ...core import environment
from ...core.environment import Launch
from ...core.errors import CheckpointError, DdpgradError, MismatchError, RankFailedError, StallError
from ..protocol import progress
from .channel import MAX_TEXT, Failure
from .phase import is_machinery, phase_of, users_line

# The length of a message in the one line about an error.
_MAX_LINE = 500
_CAUSES = {StallError: "stall", MismatchError: "mismatch", CheckpointError: "checkpoint"}
_RAISED_BY = re.compile(r"\(raised by rank (\d+)\)")


def exit_status(error: BaseException) -> int:
    """The exit status that Python would end with after `error`; 1 for a code such as 256, of which the kernel keeps 0."""
    if isinstance(error, SystemExit):
        if not error.code and isinstance(error.code, int | None):
            return 0
        return error.code & 0xFF or 1 if isinstance(error.code, int) else 1
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def line_of(error: BaseException) -> str:
    """'file:line' of the innermost frame of the user's code that `error` came through; '' if there is none."""
    trace = list(traceback.walk_tb(error.__traceback__))
    return users_line((frame.f_code.co_filename, line) for frame, line in reversed(trace))


def failure_of(error: BaseException, launch: Launch) -> Failure:
    """The failure of a rank of this process in which the script raised `error`."""
    ranks = tuple(launch.ranks) if len(launch.ranks) == 1 else _ranks_named(error) or tuple(launch.ranks)
    where, reason = line_of(error), f"exit code {exit_status(error)}"
    blamed = _blamed(error)
    if (here := [rank for rank in blamed if rank in launch.ranks]) and not set(ranks) & set(here):
        ranks = (here[0],)  # another rank of this process has raised what this one did
        if isinstance(error, StallError):
            reason, where = "stalled", error.where
    return Failure(
        ranks=ranks,
        time=time.monotonic(),
        reason=reason,
        error=_one_line(error),
        text=_text(error, where),
        where=where,
        secondary=_lost_a_peer(error) or (bool(blamed) and not set(blamed) & set(launch.ranks)),
        blames=blamed,
        cause=next((cause for kind, cause in _CAUSES.items() if isinstance(error, kind)), "error"),
        phase=phase_of(_files(error)),
        **_last_of(ranks[0]),
    )


def failure_by_exit(status: int, rank: int) -> Failure:
    """The failure of `rank`, which is calling `os._exit(status)`."""
    stack = [(frame, line) for frame, line in traceback.walk_stack(None) if not is_machinery(_file(frame))]
    what = f"rank {rank} called os._exit({status}) before its script was finished"
    shown = traceback.StackSummary.extract(reversed(stack)).format()
    return Failure(
        ranks=(rank,),
        time=time.monotonic(),
        reason=f"exit code {status}",
        error=what,
        text="".join(["Stack (most recent call last):\n", *shown, what, "\n"]),
        where=users_line((_file(frame), line) for frame, line in stack),
        **_last_of(rank),
    )


def _last_of(rank: int) -> dict[str, Any]:
    """The fields of a Failure about the progress of `rank` of this process."""
    state = progress.hosted().get(rank)
    if state is None:
        return {"step": None}
    return {"step": state.steps, "collective": state.last()[-1] if state.collectives else ""}


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _files(error: BaseException) -> list[tuple[str, str]]:
    """(file, function) of each frame from the script's first on, the innermost first."""
    trace = _from_the_script_on(error.__traceback__)
    return [(f.f_code.co_filename, f.f_code.co_name) for f, _ in traceback.walk_tb(trace)][::-1]


def _ranks_named(error: BaseException) -> tuple[int, ...]:
    """The rank in the note that the host adds to an error of one of several ranks."""
    notes = " ".join(getattr(error, "__notes__", ()))
    return tuple(int(rank) for rank in _RAISED_BY.findall(notes)[:1])


def _one_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    name = type(error).__name__
    return f"{name}: {_shortened(lines[0], _MAX_LINE)}" if lines else name


def _shortened(text: str, limit: int) -> str:
    """`text` without its middle, if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} ... {len(text) - 2 * half} characters left out ... {text[-half:]}"


def _text(error: BaseException, where: str) -> str:
    if isinstance(error, SystemExit):
        if isinstance(error.code, int):
            return f"sys.exit({error.code}) was called at {where}\n"
        return f"{_shortened(str(error.code), MAX_TEXT)}\n"
    shown = traceback.TracebackException(type(error), error, _from_the_script_on(error.__traceback__))
    text = _shortened("".join(shown.format()), MAX_TEXT)
    if isinstance(error, bdb.BdbQuit) and not environment.debugger():
        text += "A debugger needs the terminal: start the same command with `ddprun --debug`.\n"
    return text


def _from_the_script_on(trace: TracebackType | None) -> TracebackType | None:
    """`trace` without the frames of the machinery that runs the script."""
    while trace is not None and is_machinery(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _lost_a_peer(error: BaseException | None) -> bool:
    """Whether `error`, or an error that it was raised from, reports the failure of another rank."""
    return any(isinstance(link, RankFailedError) for link in _chain(error))


def _blamed(error: BaseException) -> tuple[int, ...]:
    """The ranks at fault, according to `error` or an error that it was raised from."""
    return next((link.ranks for link in _chain(error) if isinstance(link, DdpgradError) and link.ranks), ())


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """`error` and the errors that it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
