"""The messages that the processes of a job send to the launcher, and the channel that carries them.

Each process holds one byte stream to the launcher: an inherited pipe (`fd:7`), or, where mpiexec stands
between the two, a Unix socket (`unix:NAME`; NAME is no file and needs no removing, and only Linux has such)
or, for several hosts, a TCP socket (`tcp:TOKEN@PORT@HOST,...`, with the names under which hosts may know
the launcher's host; the launcher ignores a connection that does not begin with the job's token). The stream
carries one JSON object per line:

    hello      the ranks that the process hosts
    heartbeat  the progress of a rank, several times a second (see heartbeat.py)
    logged     the latest numbers that a rank has logged, when there are new ones
    meeting    the process begins to wait for others in a meeting, whose name it gives, or its wait is over
    loaded     what the ranks have loaded, for processes that may take their place
    failed     a rank raised (see Failure)
    saves      the program saves its work when it is asked to end
    preempted  the ranks have saved their work on request, and end
    done       the script came to its end in every hosted rank
    ended      the exit status of the process, from its agent (see `launcher/job/agent.py`)
    orphaned   instead of `ended`: the agent ended the process because its own parent was gone

A stream that ends without one of the last four means that the process died, whatever its exit code
is: so the launcher notices an `os._exit(0)`. A line that is no JSON object is text of `faulthandler`, which
writes to the same stream when the process crashes, and when it is asked for its stacks.

This module imports little; see `launcher/job/process_main.py`.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

# A traceback may be of any length (nested exception groups); a screen and the launcher's memory are limited.
MAX_TEXT = 64 * 1024

_CONNECT_S = 30.0
_MOST_NUMBERS = 256

HEARTBEAT_S = 0.2
"""The seconds between two heartbeats of a rank, in jobs of up to 500 ranks."""


def heartbeat_s(ranks: int) -> float:
    """The seconds between two heartbeats in a job of so many ranks: the launcher gets at most 2,500 in a second."""
    return max(HEARTBEAT_S, ranks / 2500)


@dataclass(frozen=True)
class Failure:
    """Why a rank, or a whole process, ended before its time."""

    ranks: tuple[int, ...]
    """The rank that failed; all ranks of the process if it is not known which; none if the process
    failed before it had ranks."""
    time: float
    """Seconds on the host's monotonic clock; orders the failures."""
    reason: str
    """In a few words, for the headline: 'exit code 1', 'killed by SIGKILL'."""
    error: str
    """One line: exception and message."""
    text: str
    """The traceback, or other text to be shown in full."""
    where: str = ""
    """'file:line' of the innermost frame of the user's code."""
    secondary: bool = False
    """Whether the rank failed only because another one had failed."""
    blames: tuple[int, ...] = ()
    """The ranks that this one holds to be at fault."""
    cause: str = "error"
    """'error', 'stall', 'mismatch' or 'checkpoint'; see exit_codes.py."""
    step: int | None = None
    """Optimizer steps that the rank had finished; None if that is not known."""
    phase: str = ""
    """The part of a step that it was in: 'backward', 'optimizer' ...; see phase.py."""
    collective: str = ""
    """The last collective that it began, with shape, parameter names and line."""


class Sender:
    """The process's end of a channel. Only the process that opened it sends; a forked copy sends nothing."""

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
            from . import tcp_keepalive  # jobs of one host have no use for it

            token, port, hosts = rest.split("@")
            with connect(hosts.split(","), int(port)) as connection:
                connection.settimeout(None)
                # The launcher may be stopped for a while (Ctrl-Z), and read nothing.
                tcp_keepalive.enable(connection, peer_reads=False)
                connection.sendall(token.encode() + b"\n")
                self.fd = connection.detach()
        else:
            raise ValueError(
                f"a report address is fd:NUMBER, unix:NAME or tcp:TOKEN@PORT@HOST,..., got {address!r}"
            )

    @property
    def forked(self) -> bool:
        """Whether this is a forked copy."""
        return os.getpid() != self._pid

    def own_address(self) -> str:
        """The address of this host in the network to the launcher's; of a TCP channel."""
        with socket.socket(fileno=os.dup(self.fd)) as connection:
            return connection.getsockname()[0]

    def cut_off(self) -> bool:
        """Whether the launcher's host no longer answers, though the connection has not ended."""
        if not self._between_hosts:
            return False
        from . import tcp_keepalive

        return tcp_keepalive.unanswered(self.fd)

    def hello(self, ranks: range) -> None:
        place = {"host": os.uname().nodename, "pid": os.getpid()}
        self._send({"kind": "hello", "ranks": list(ranks), **place})

    def failed(self, failure: Failure) -> None:
        self._send({"kind": "failed", **asdict(failure)})

    def meeting(self, name: str, where: str = "", limit: float = 0.0) -> None:
        """The process waits `limit` seconds at `where`, 'file:line', for all others in the meeting `name`; '': in none."""
        self._send({"kind": "meeting", "name": name, "where": where, "limit": min(limit, 1e9)})

    def done(self, where: str = "") -> None:
        """where: 'file:line' of the `sys.exit` by which the script ended, if it did."""
        self._send({"kind": "done", "where": where})

    def loaded(self, modules: list[str], kernels: str) -> None:
        """See `launcher/job/preloading.py`."""
        self._send({"kind": "loaded", "modules": modules, "kernels": kernels})

    def saves(self) -> None:
        self._send({"kind": "saves"})

    def preempted(self, step: int) -> None:
        self._send({"kind": "preempted", "step": step})

    def heartbeat(
        self,
        rank: int,
        counters: tuple[int, ...],
        last: list[str],
        waited: float = 0.0,
        turn: bool = False,
        waits_for: str = "",
        memory: tuple[int | None, int | None] = (None, None),
    ) -> None:
        """Report the progress of a rank; see `watchdog.Progress` for the counters.

        last: collectives begun since the last heartbeat; waited: total seconds of waiting for others;
        turn: it is the one that runs, of several in its process; waits_for: see `spans.long_waits`; memory: see
        `progress.memory`.
        """
        fields = {"kind": "heartbeat", "rank": rank, "counters": counters, "waited": round(waited, 3)}
        fields |= {"turn": turn, "waits_for": waits_for, "memory": memory}
        while len(message := _encoded({**fields, "last": last})) > select.PIPE_BUF:
            last = last[1:]
        self._write(message)

    def logged(self, rank: int, step: int, numbers: Mapping[str, float]) -> None:
        """The latest numbers of a rank, and the latest step. Of very many only the first are sent."""
        self._send(
            {
                "kind": "logged",
                "rank": rank,
                "step": step,
                "numbers": dict(islice(numbers.items(), _MOST_NUMBERS)),
            }
        )

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
        if self.forked:
            return
        # A long message is many writes, and no heartbeat may come between them.
        with self._lock:
            while data:
                data = data[os.write(self.fd, data) :]


def _encoded(message: dict[str, Any]) -> bytes:
    # The line break in front ends a line of `faulthandler` that may be unfinished.
    return b"\n" + json.dumps(message).encode() + b"\n"


def connect(hosts: Sequence[str], port: int) -> socket.socket:
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
        """Take bytes from the stream; yield the messages that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = _message(line)
            if message is not None:
                yield message
            elif line:
                self._crash(line + b"\n")
        # The text of a message is bounded; anything longer is no message.
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
