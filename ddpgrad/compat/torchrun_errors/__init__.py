"""`record`, the decorator with which scripts mark their main function for torchrun's error files, and what is read of these."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from .error_handler import ErrorHandler

F = TypeVar("F", bound=Callable[..., Any])

_NOTHING = "<N/A>"


def get_error_handler() -> ErrorHandler:
    """The one that `record` uses."""
    return ErrorHandler()


@dataclass
class ProcessFailure:
    """How a process has failed, with what its error file says, if there is one."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: dict[str, Any] = field(init=False)
    message: Any = field(init=False)
    timestamp: int = field(init=False)

    def __post_init__(self) -> None:
        if Path(self.error_file).is_file():
            told = self.error_file_data = json.loads(Path(self.error_file).read_text("utf-8"))
            message = self.message = told["message"]
            self.timestamp = int(
                told.get("timestamp", 0) if isinstance(message, str) else message["extraInfo"]["timestamp"]
            )
            if message:
                return
        else:
            self.error_file, self.error_file_data = _NOTHING, {"message": ""}
            self.timestamp = int(time.time())
        if self.exitcode < 0:
            self.message = f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
        else:
            self.message = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"

    def signal_name(self) -> str:
        """Of the signal that ended the process; `<N/A>` if none did."""
        known = {int(one): one.name for one in signal.Signals}
        return known.get(-self.exitcode, _NOTHING) if self.exitcode < 0 else _NOTHING

    def timestamp_isoformat(self) -> str:
        """When it failed."""
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")


class ChildFailedError(Exception):
    """Processes that this one started have failed. failures: by their ranks."""

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        if not failures:
            raise AssertionError("a ChildFailedError tells of one failure at least")
        self.name, self.failures = name, failures
        super().__init__(self.format_msg())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """The earliest one, with its rank; one that SIGTERM ended, as it ends the others of a rank that failed, if all are such."""
        return min(
            self.failures.items(), key=lambda item: (item[1].exitcode == -signal.SIGTERM, item[1].timestamp)
        )

    def format_msg(self) -> str:
        """The failures, the first one last."""
        first, _ = self.get_first_failure()
        told = {rank: _told(i, rank, one) for i, (rank, one) in enumerate(self.failures.items())}
        title = f"{self.name} FAILED"
        width = min(60, max(len(line) for text in (title, *told.values()) for line in text.split("\n")))
        others = "\n".join(text for rank, text in told.items() if rank != first) or "  <NO_OTHER_FAILURES>"
        thick, thin = "=" * width, "-" * width
        return "\n".join(
            [
                "", thick, title, thin, "Failures:", others, thin, "Root Cause (first observed failure):", told[first], thick,
            ]
        )  # fmt: skip


def _told(place: int, rank: int, failure: ProcessFailure) -> str:
    message = failure.message
    if isinstance(message, dict):
        message = message.get("extraInfo", {}).get("py_callstack", message.get("message", _NOTHING))
        message = message.replace("\n", "\n  ")
    name = failure.signal_name()
    ended = f"{failure.exitcode} (pid: {failure.pid}) " + ("" if name == _NOTHING else f" ({name})")
    return (
        f"[{place}]:\n  time      : {failure.timestamp_isoformat()}\n  host      : {socket.getfqdn()}\n"
        f"  rank      : {rank} (local_rank: {failure.local_rank})\n  exitcode  : {ended}\n"
        f"  error_file: {failure.error_file}\n  traceback : {message}"
    )


def record(fn: F, error_handler: ErrorHandler | None = None) -> F:
    """`fn`, of which a failure is written where torchrun asks for it; an exit with code 0 returns None.

    Of a ChildFailedError what the child has written is. ddprun shows the traceback of the rank that failed first without
    being asked.
    """
    handler = error_handler or get_error_handler()

    @wraps(fn)
    def called(*args: Any, **kwargs: Any) -> Any:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
            return None
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            if failure.error_file != _NOTHING:
                handler.dump_error_file(failure.error_file, failure.exitcode)
            raise
        except Exception as error:
            handler.record_exception(error)
            raise

    return cast(F, called)


__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]
