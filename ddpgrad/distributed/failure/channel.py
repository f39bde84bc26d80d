"""What the processes of a job tell the launcher, and how it travels.

Each process holds one byte stream to the launcher: an inherited pipe (`fd:7`), or, where
mpiexec stands between the two, a Unix socket (`unix:NAME`, where NAME is no file and needs no
removing; only Linux has such) or, for several hosts, a TCP socket (`tcp:TOKEN@PORT@HOST,...`, with
the names under which hosts may know the launcher's; what does not begin with the job's token is not
listened to). It carries one JSON object per line:

    hello      which ranks the process hosts
    beat       how far a rank has come, several times a second (see heartbeat.py)
    failed     a rank raised (see Failure)
    preempted  the ranks have saved their work, as they were asked to, and end
    done       the script came to its end in every hosted rank
    ended      how the process ended, said by its agent (see agent.py)
    orphaned   said instead by an agent that ended it because what had started them was gone

A stream that ends without one of the last four means that the process died, whatever its exit code
says: that is how an `os._exit(0)` is seen. A line that is no JSON object is text of
`faulthandler`, which writes to the same stream when the process crashes, and when it is
asked for its stacks.

This module imports nothing of ddpgrad; see child.py.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from . import keepalive

# A traceback may be as long as it likes (nested exception groups); a screen and the
# launcher's memory are not.
MAX_TEXT = 64 * 1024

_CONNECT_S = 30.0

BEAT_S = 0.2
"""How often a process says how far its ranks have come."""

STACKS_SIGNAL = signal.SIGQUIT
"""What a process answers with the stacks of its threads."""


@dataclass(frozen=True)
class Failure:
    """Why a rank, or a whole process, ended before its time."""

    ranks: tuple[int, ...]
    """The rank that failed; all ranks of the process where it cannot be told which; none where
    the process did not get as far as having ranks."""
    time: float
    """Seconds on the host's monotonic clock; orders the failures."""
    reason: str
    """In a few words, for the headline: 'exit code 1', 'killed by SIGKILL'."""
    error: str
    """One line: exception and message."""
    text: str
    """What is to be shown in full: the traceback."""
    where: str = ""
    """'file:line' of the innermost frame of the user's code."""
    victim: bool = False
    """True when the rank only found out that another one had failed."""
    blames: tuple[int, ...] = ()
    """Ranks that this one says are at fault."""
    cause: str = "error"
    """'error', 'stall', 'mismatch' or 'checkpoint'; see exit_codes.py."""
    step: int | None = None
    """Optimizer steps that the rank had finished; None where that is not known."""
    phase: str = ""
    """What part of a step it was in: 'backward', 'optimizer' ...; see phase.py."""
    collective: str = ""
    """The last collective that it began, with shape, parameter names and line."""


class Sender:
    """The process's end of a channel. Only the process that opened it sends: a forked copy is silent."""

    def __init__(self, address: str) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        kind, _, rest = address.partition(":")
        self._between_hosts = kind == "tcp"
        if kind == "fd":
            self.fd = int(rest)
            os.set_inheritable(self.fd, False)
        elif kind == "unix":
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(f"\0{rest}")
                self.fd = connection.detach()
        elif kind == "tcp":
            token, port, hosts = rest.split("@")
            with _connect(hosts.split(","), int(port)) as connection:
                connection.settimeout(None)
                keepalive.probe(connection, answers=False)  # the launcher may be stopped for a while (Ctrl-Z)
                connection.sendall(token.encode() + b"\n")
                self.fd = connection.detach()
        else:
            raise ValueError(
                f"a report address is fd:NUMBER, unix:NAME or tcp:TOKEN@PORT@HOST,..., got {address!r}"
            )

    def cut_off(self) -> bool:
        """Whether the launcher's host gives no sign of life, though the connection has not ended."""
        return self._between_hosts and keepalive.unheard(self.fd)

    def hello(self, ranks: range) -> None:
        self._send({"kind": "hello", "ranks": list(ranks)})

    def failed(self, failure: Failure) -> None:
        self._send({"kind": "failed", **asdict(failure)})

    def done(self) -> None:
        self._send({"kind": "done"})

    def preempted(self, step: int) -> None:
        self._send({"kind": "preempted", "step": step})

    def beat(self, rank: int, counters: tuple[int, ...], last: list[str], waited: float = 0.0) -> None:
        """`counters` that change when the rank gets on; `last`: collectives begun since the last beat.

        waited: seconds that its process has waited for others, all together.
        """
        beat = {"kind": "beat", "rank": rank, "counters": counters, "waited": round(waited, 3)}
        while len(message := _encoded({**beat, "last": last})) > select.PIPE_BUF:
            last = last[1:]
        self._write(message)

    def ended(self, status: int) -> None:
        """status: an exit status, or minus the signal."""
        self._send({"kind": "ended", "status": status})

    def orphaned(self) -> None:
        self._send({"kind": "orphaned"})

    def pass_on(self, data: bytes) -> None:
        """Send `data` of another sender."""
        self._write(data)

    def _send(self, message: dict[str, Any]) -> None:
        self._write(_encoded(message))

    def _write(self, data: bytes) -> None:
        if os.getpid() != self._pid:
            return
        # A long message is many writes, between which a beat must not come.
        with self._lock:
            while data:
                data = data[os.write(self.fd, data) :]


def _encoded(message: dict[str, Any]) -> bytes:
    # The line break before it ends what `faulthandler` may just be in the middle of.
    return b"\n" + json.dumps(message).encode() + b"\n"


def _connect(hosts: list[str], port: int) -> socket.socket:
    """A connection to the first of `hosts` that can be reached."""
    for host in hosts[:-1]:
        try:
            return socket.create_connection((host, port), timeout=_CONNECT_S / len(hosts))
        except OSError:
            continue  # a name that only other hosts know
    return socket.create_connection((hosts[-1], port), timeout=_CONNECT_S / len(hosts))


class Receiver:
    """The launcher's end of a channel: bytes in, messages out."""

    def __init__(self) -> None:
        self._rest = b""
        self.crash_text = ""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Take bytes from the stream; yield the messages that they complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = _message(line)
            if message is not None:
                yield message
            elif line:
                self._crash(line + b"\n")
        # A message may be long (its text is bounded); anything longer is not one.
        if len(self._rest) > 16 * MAX_TEXT:
            self._crash(self._rest)
            self._rest = b""

    def _crash(self, line: bytes) -> None:
        if len(self.crash_text) < MAX_TEXT:
            self.crash_text += line.decode(errors="replace")


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def failure_from(message: dict[str, Any]) -> Failure:
    """The Failure in a `failed` message."""
    fields = {key: value for key, value in message.items() if key != "kind"}
    return Failure(**{**fields, "ranks": tuple(fields["ranks"]), "blames": tuple(fields["blames"])})
