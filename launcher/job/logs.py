"""The log folder of a run: the output of every rank, and the report of a failure."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure.channel import Failure
from ddpgrad.distributed.failure.report_files import REPORT, write_failure
from ddpgrad.distributed.failure.watchdog import Progress

EVENTS = "events.jsonl"
EARLIER = "failure.earlier.json"


class Logs:
    """Files in `folder`; with None, nothing is kept.

    rank_K.log       the output of rank K (ranks_K-L.log: output of a process of several ranks that no rank
                     has marked as its own, such as messages of mpiexec)
    rank_K.stacks    the stacks of its threads, if it was asked for them or crashed
    config.json      the job as it was started (run_config.py)
    failure.json     the first failure, the others, and every rank's last collectives; that of an earlier job in this
                     folder becomes failure.earlier.json
    events.jsonl     what ddprun said of the job, if anything: failures, restarts, slow ranks, and then its end; each with its time

    A folder serves one job at a time. A restart, and a later job, adds to the files.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._files: dict[str, int] = {}
        self._lock: int | None = None
        self._broken: OSError | None = None

    def __enter__(self) -> Logs:
        if self.folder is not None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise LaunchError(f"--log-dir {self.folder} cannot be written to: {error}") from None
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LaunchError(
                    f"--log-dir {self.folder}: another job writes there; choose another folder"
                ) from None
            except OSError as error:  # some network file systems have none
                print(
                    f"ddprun: --log-dir {self.folder} cannot be locked ({error}): let no other job write there.",
                    file=sys.stderr,
                )
            self._set_aside()
        return self

    def _set_aside(self) -> None:
        """Let the report of an earlier job's failure not be taken for one of this job's."""
        assert self.folder is not None
        try:
            (self.folder / REPORT).replace(self.folder / EARLIER)
        except FileNotFoundError:
            return
        except OSError as error:
            raise LaunchError(f"--log-dir {self.folder} cannot be written to: {error}") from None

    def __exit__(self, *exception: object) -> None:
        for file in self._files.values():
            os.close(file)
        if self._lock is not None and self.folder is not None:
            (self.folder / ".lock").unlink(missing_ok=True)
            os.close(self._lock)

    def of(self, ranks: range) -> Callable[[bytes], None] | None:
        """A function that keeps the output of a process that hosts `ranks`; None if there is no folder."""
        if self.folder is None:
            return None
        file = self._open(f"{_name(ranks)}.log")

        def write(data: bytes) -> None:
            # A full disk must not end the job; the screen goes on.
            if self._broken is None:
                try:
                    os.write(file, data)
                except OSError as error:
                    self._broken = error

        return write

    @property
    def problem(self) -> str:
        """One line about an error of the log files; '' if there was none."""
        gone = ", ".join(name for name, file in self._files.items() if os.fstat(file).st_nlink == 0)
        found = self._broken or (gone and f"{gone} deleted while the job ran")
        return f"ddprun: the logs in {self.folder} are incomplete: {found}\n" if found else ""

    def note(self, text: str, **more: object) -> None:
        """Keep what ddprun says of the job. (failure.json has the last failure only.)"""
        if self.folder is not None and self._broken is None:
            event = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "text": text.strip(), **more}
            try:
                os.write(self._open(EVENTS), json.dumps(event).encode() + b"\n")
            except OSError as error:
                self._broken = error

    def ended(self, code: int) -> None:
        """Say how a job ended of which something was said."""
        if EVENTS in self._files:
            self.note(f"ddprun: the job ended with exit code {code}.", exit_code=code)

    def failure(
        self,
        failures: Sequence[Failure],
        code: int,
        progress: Mapping[int, Progress],
        dumps: Mapping[int, str],
        restart_count: int,
    ) -> None:
        """Write the report of a failed job."""
        if self.folder is None:
            return
        try:
            write_failure(self.folder, failures, code, progress, dumps, restart_count)
        except OSError as error:
            self._broken = error

    def _open(self, name: str) -> int:
        assert self.folder is not None
        if name not in self._files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._files[name] = os.open(self.folder / name, flags, 0o644)
        return self._files[name]


def _name(ranks: range) -> str:
    return f"rank_{ranks[0]}" if len(ranks) == 1 else f"ranks_{ranks[0]}-{ranks[-1]}"
