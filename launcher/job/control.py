"""The socket of a running ddprun, on which its user asks how it is (`ddprun top`), or for other processes (`ddprun resize`).

Its name is in the kernel's table, by ddprun's process number, and is no file. Only the same user, or root, is heard.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.transports.process_monitor import pid_namespace

from .status import JobStatus, Status

_MOST = 4096  # bytes of a message
_MOST_ASKING = 32  # the next takes the place of the oldest
_ANSWER_S = 10.0
_STATUS = "status"


def _name(pid: int | str) -> str:
    return f"\0ddprun-{pid_namespace()}-{pid}"


class Control:
    """Listens as long as it is entered.

    resize: called with the number of processes that was asked for; its answer is '', or why it cannot be. status: of the job.
    """

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._listening: socket.socket | None = None
        self._asking: list[socket.socket] = []
        self.status = JobStatus()
        self.resize: Callable[[int], str] = lambda procs: "the job has ended"

    def __enter__(self) -> Control:
        if sys.platform == "linux":
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            try:
                listening.bind(_name(os.getpid()))
            except OSError:  # somebody has taken the name: `ask` says that no ddprun of its user answers
                listening.close()
                return self
            listening.listen()
            self._selector.register(listening, selectors.EVENT_READ, lambda fd: self._accept())
            self._listening = listening
        return self

    def __exit__(self, *_: object) -> None:
        for asking in self._asking[:]:
            self._hang_up(asking)
        if self._listening is not None:
            self._selector.unregister(self._listening)
            self._listening.close()

    def _accept(self) -> None:
        assert self._listening is not None
        with contextlib.suppress(OSError):  # who asked has gone
            asking, _ = self._listening.accept()
            if _user_of(asking) not in (0, os.geteuid()):
                asking.close()
                return
            if len(self._asking) >= _MOST_ASKING:
                self._hang_up(self._asking[0])
            self._asking.append(asking)
            asking.setblocking(False)
            self._selector.register(asking, selectors.EVENT_READ, lambda fd: self._answer(asking))

    def _answer(self, asking: socket.socket) -> None:
        with contextlib.suppress(OSError):
            text = asking.recv(_MOST).decode(errors="replace")
            if text == _STATUS:
                self._send_status(asking)
            elif text:
                answer = self.resize(int(text)) if text.isdecimal() else f"not a number: {text!r}"
                asking.send(f"{'no' if answer else 'ok'} {answer}".encode())
        self._hang_up(asking)

    def _send_status(self, asking: socket.socket) -> None:
        """Of any length, and at once: as a file without a name."""
        with open(os.memfd_create("ddprun-status"), "wb") as file:
            file.write(json.dumps(self.status.read()).encode())
            file.flush()
            socket.send_fds(asking, [b"ok "], [file.fileno()])

    def _hang_up(self, asking: socket.socket) -> None:
        self._asking.remove(asking)
        self._selector.unregister(asking)
        asking.close()


def _user_of(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return struct.unpack("iII", credentials)[1]


def ask(pid: int, procs: int) -> None:
    """Let the ddprun with that process number go on in `procs` processes; LaunchError where it cannot."""
    verdict, _, why = _answer_of(pid, str(procs))[0].partition(" ")
    if verdict != "ok":
        raise LaunchError(why or f"the ddprun with process number {pid} has hung up")


def status(pid: int) -> Status:
    """What the ddprun with that process number knows of its job; LaunchError where there is none of this user."""
    _, files = _answer_of(pid, _STATUS)
    if not files:
        raise LaunchError(f"the ddprun with process number {pid} has hung up")
    with open(files[0], "rb") as file:
        file.seek(0)
        return json.load(file)


def running() -> list[int]:
    """The process numbers of all ddpruns of this host, other users' too, as far as this process can reach them."""
    if sys.platform != "linux":
        return []
    begin = f"@{_name('')[1:]}"
    names = [
        line.rpartition(" ")[2] for line in Path("/proc/net/unix").read_text(errors="replace").splitlines()
    ]
    numbers = (name.removeprefix(begin) for name in names if name.startswith(begin))
    return sorted({int(number) for number in numbers if number.isdecimal()})  # anybody may take such a name


def _answer_of(pid: int, request: str) -> tuple[str, list[int]]:
    """What a ddprun says to `request`, and the files that come with it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(_ANSWER_S)
        try:
            connection.connect(_name(pid))
            if os.geteuid() not in (0, _user_of(connection)):
                raise OSError("it is another user's")
            connection.send(request.encode())
            said, files, _, _ = socket.recv_fds(connection, _MOST, 1)
        except OSError as error:
            raise LaunchError(
                f"no ddprun of yours with process number {pid} answers on this host ({error.strerror or error}); "
                "`ddprun top` lists them"
            ) from None
    return said.decode(), files
