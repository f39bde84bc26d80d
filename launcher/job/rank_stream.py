"""`sys.stdout` and `sys.stderr` of a process that must prefix its lines itself.

A process of several ranks must, since only it knows which of them prints. So must every process under
mpiexec, which mixes the output of the processes before the launcher gets it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any, TextIO

from .output import MAX_LINE, Lines


class RankStream(io.TextIOBase):
    """A text stream that writes through to `stream`, each line marked with the rank that prints it."""

    def __init__(self, stream: TextIO, current_rank: Callable[[], int | None]) -> None:
        self._stream = stream
        self._current_rank = current_rank
        self._lines = Lines()
        self._held: dict[int | None, bytearray] = {}
        # A progress bar redraws its line on a terminal, which a prefix would disturb.
        self._bare_rank = 0 if stream is sys.stderr and stream.isatty() else None

    def write(self, text: str, /) -> int:
        rank = self._current_rank()
        held = self._held.setdefault(rank, bytearray())
        # `surrogateescape` and the like stay the stream's choice, so odd file names print as ever.
        held += text.encode(self._stream.encoding, self._stream.errors or "strict")
        # `print` writes each argument by itself. Here one line is one write, so that lines do not mix.
        if "\n" in text or len(held) > MAX_LINE:
            self._release(rank)
        return len(text)

    def flush(self) -> None:
        for rank in list(self._held):
            self._release(rank)

    def _release(self, rank: int | None) -> None:
        data = bytes(self._held.pop(rank, b""))
        prefix = b"" if rank is None or rank == self._bare_rank else f"[rank {rank}] ".encode()
        self._stream.buffer.write(self._lines.mark(-1 if rank is None else rank, prefix, data))
        self._stream.flush()

    def isatty(self) -> bool:
        """Whether the calling rank may draw: only rank 0 has a terminal's error stream to itself."""
        mine = self._bare_rank is None or self._current_rank() == self._bare_rank
        return mine and self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._stream.errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def install(current_rank: Callable[[], int | None]) -> None:
    """Put a RankStream before `sys.stdout` and `sys.stderr`."""
    sys.stdout = RankStream(sys.stdout, current_rank)
    sys.stderr = RankStream(sys.stderr, current_rank)
