"""The error of checkpoints under PyTorch's name."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from ...core.errors import CheckpointError

WRAPPED_EXCEPTION = tuple[BaseException, traceback.StackSummary]


class CheckpointException(CheckpointError):
    """A checkpoint could not be written or read, on all ranks alike.

    failures: by the rank that failed its error, and where that was raised. An error of a class that does not go from rank to
    rank is a CheckpointError elsewhere, with its text.
    """

    def __init__(self, msg: str, failures: Mapping[int, WRAPPED_EXCEPTION] | None = None) -> None:
        super().__init__(msg, dict(failures or {}))
        self._step = msg
        self._failures = dict(failures or {})

    @property
    def failures(self) -> dict[int, WRAPPED_EXCEPTION]:
        return self._failures

    def __str__(self) -> str:
        found = [f"rank {rank}: {_in_words(error)}" for rank, (error, _) in self._failures.items()]
        return "\n".join(found) or self._step


def _in_words(error: BaseException) -> str:
    return str(error) if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"


def _wrap_exception(exc: BaseException) -> WRAPPED_EXCEPTION:
    summary = traceback.extract_tb(exc.__traceback__)
    for frame in summary:
        if hasattr(frame, "_code"):  # of Python 3.13, which cannot be pickled
            object.__setattr__(frame, "_code", None)
    return exc, summary


def _is_wrapped_exception(obj: Any) -> bool:
    return (
        isinstance(obj, tuple)
        and len(obj) == 2
        and isinstance(obj[0], BaseException)
        and isinstance(obj[1], traceback.StackSummary)
    )
