"""The launcher's loop: calls what its events are for, and turns signals to the launcher into events."""

from __future__ import annotations

import os
import selectors
import signal
from types import FrameType
from typing import Any

# SIGCHLD is caught only so that it wakes the loop.
_CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)


def handle_events(selector: selectors.BaseSelector, timeout: float | None) -> None:
    """Wait up to `timeout` seconds for events, and call the handler of each, `key.data(fd)`."""
    for key, _ in selector.select(timeout):
        # An earlier handler may have closed this one's connection, and another may have its number already.
        now = selector.get_map().get(key.fd)
        if now is not None and now.data is key.data:
            key.data(key.fd)


class Signals:
    """While entered, signals wake `selector`, and those to act on are in `pending`."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.pending: list[signal.Signals] = []
        self._selector = selector
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        self._receiving, self._sending = os.pipe()
        for fd in (self._receiving, self._sending):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._sending, warn_on_full_buffer=False)
        for number in _CAUGHT:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # as nohup asks for: the job outlives the terminal
            self._previous[number] = signal.signal(number, self._note)
        self._selector.register(self._receiving, selectors.EVENT_READ, lambda fd: os.read(fd, 4096))
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        self._selector.unregister(self._receiving)
        os.close(self._receiving)
        os.close(self._sending)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self.pending.append(signal.Signals(number))
