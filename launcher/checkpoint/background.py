"""Writes checkpoints in the background: a thread in each rank writes, and that of rank 0 waits for all.

The threads use no collective, which could come between those of the training. They leave reports in the
hidden folder of the checkpoint.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ddpgrad.core import environment
from ddpgrad.core.errors import CheckpointError
from ddpgrad.distributed.ranks import world

_LOOK_S = 0.02


class Writer:
    """A thread that writes one thing at a time. `wait` raises its error, or else the end of the program does."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "checkpoint writer")  # which Python's end waits for
        self._begun: list[Future[None]] = []
        world.current().last_checks.add(functools.partial(_last_error, self._begun), self)
        self._given_up = threading.Event()

    def start(self, write: Callable[[], None]) -> None:
        """Run `write` in the thread."""
        self._given_up.clear()
        self._begun[:] = [self._pool.submit(_told, write)]

    def wait(self) -> None:
        """Return when nothing is being written; raises an error that came since the last call."""
        if self._begun:
            self._begun.pop().result()

    def give_up(self) -> None:
        """Wait for no more reports of other ranks."""
        self._given_up.set()

    def collect(self, folder: Path, ranks: int) -> list[Any]:
        """Wait for the reports of ranks 1 to `ranks` - 1, and return them; CheckpointError if one failed."""
        reports = []
        until = time.monotonic() + environment.timeout()
        for rank in range(1, ranks):
            path = _report(folder, rank)
            # Asking for the file itself, and not for the folder's entries: those may be old on NFS.
            while not path.exists():
                if self._given_up.wait(_LOOK_S) or time.monotonic() > until:
                    raise CheckpointError(
                        f"rank {rank} has not finished its part of the checkpoint in {folder}"
                    )
            report = json.loads(path.read_text())
            path.unlink()
            if report["error"] is not None:
                raise CheckpointError(f"rank {rank}: {report['error']}")
            reports.append(report["result"])
        return reports


def _last_error(begun: list[Future[None]]) -> CheckpointError | None:
    """The error of what nobody has waited for."""
    error = begun.pop().exception() if begun else None
    if error is None or isinstance(error, CheckpointError):
        return error
    raise error


def _told(write: Callable[[], None]) -> None:
    try:
        write()
    except Exception as error:
        # The program may never ask again.
        print(f"checkpoint writer: {error}", file=sys.stderr)
        raise


def report(folder: Path, rank: int, action: Callable[[], Any]) -> None:
    """Run `action` and leave its result, plain data, or its error in `folder` for rank 0's `collect`."""
    result, failure = None, None
    try:
        result = action()
    except CheckpointError as error:
        failure = error
    path = _report(folder, rank)
    begun = path.with_suffix(".begun")
    try:
        begun.write_text(json.dumps({"result": result, "error": None if failure is None else str(failure)}))
        os.replace(begun, path)
    except OSError as error:
        failure = failure or CheckpointError(f"cannot write {path}: {error}")
    if failure is not None:
        raise failure


def _report(folder: Path, rank: int) -> Path:
    return folder / f".rank_{rank}.report"
