"""The process manager of MPI processes that no mpiexec started: rank 0 starts it beside itself.

    python -m ddpgrad.distributed.rendezvous.process_manager     with a `Task` as JSON on standard input

It writes its port on standard output, and ends when the ranks have ended. Each rank has two connections: one is given
to the MPI library, which speaks PMI-1 there (lines `cmd=NAME key=value ...`; source: `src/pmi` of MPICH); over the
other this process says, first, that all ranks have come, and then which ended without leaving MPI, which mpiexec
would answer by ending all. A
connection begins with a line `SECRET mpi|news RANK`, and one that does not is closed. Imports the standard library
only, and of ddpgrad modules that do so.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import selectors
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from ..failure import tcp_keepalive

_LINE = 4096
# Connections that have not said the secret yet, beside those of the ranks, which may all come at once.
_STRANGERS = 64
_LIMITS = "kvsname_max=256 keylen_max=64 vallen_max=1024"
# After a loss, the time in which the other ranks may report and end.
_GRACE_S = 60.0


@dataclass(frozen=True)
class Task:
    """size: of the world; mapping: which ranks share a host, as `PMI_process_mapping` has it.

    near: all ranks reach this host's loopback; patience: seconds in which they must come.
    """

    size: int
    secret: str
    mapping: str
    near: bool
    patience: float


@dataclass(eq=False)
class _Connection:
    socket: socket.socket
    received: bytes = b""
    kind: str = ""
    rank: int = -1
    finalized: bool = False


@dataclass
class Manager:
    """Answers the MPI libraries of the ranks."""

    task: Task
    listening: socket.socket
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    connections: list[_Connection] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    """The ranks that wait in a barrier."""
    come: set[tuple[str, int]] = field(default_factory=set)
    until: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether both connections of all ranks are there, or were."""
        return len(self.come) == 2 * self.task.size

    def run(self) -> None:
        """Serve until all ranks are gone, or some do not come in time."""
        self.values["PMI_process_mapping"] = self.task.mapping
        self.until = time.monotonic() + self.task.patience
        self.listening.setblocking(False)
        self.selector.register(self.listening, selectors.EVENT_READ)
        while not self.complete or any(one.kind for one in self.connections):
            if time.monotonic() > self.until:
                return
            for key, _ in self.selector.select(1.0):
                if key.data is None:
                    self._accept()
                elif key.data in self.connections:
                    self._read(key.data)

    def _accept(self) -> None:
        connection, _ = self.listening.accept()
        tcp_keepalive.enable(connection, peer_reads=False)
        connection.settimeout(10.0)
        one = _Connection(connection)
        strangers = [other for other in self.connections if not other.kind]
        if len(strangers) >= _STRANGERS + 2 * self.task.size:
            self._close(strangers[0])
        self.connections.append(one)
        self.selector.register(connection, selectors.EVENT_READ, one)

    def _read(self, one: _Connection) -> None:
        try:
            data = one.socket.recv(_LINE)
        except OSError:  # reset, or its host does not answer
            data = b""
        *lines, one.received = (one.received + data).split(b"\n")
        for line in lines:
            if one.kind:
                self._answer(one, line.decode(errors="replace"))
            elif not self._knows(one, line):
                data = b""
                break
        if not data or len(one.received) > _LINE:
            self._close(one)
            if one.kind == "mpi" and not one.finalized:
                self._lost(one.rank, "died without a word: it was killed, or crashed")

    def _knows(self, one: _Connection, line: bytes) -> bool:
        """Whether `line` is the secret, and who has come with it."""
        secret, _, rest = line.partition(b" ")
        kind, _, rank = rest.decode(errors="replace").partition(" ")
        if not hmac.compare_digest(secret, self.task.secret.encode()) or not rank.isdigit():
            return False
        one.kind, one.rank = kind, int(rank)
        self.come.add((kind, one.rank))
        if self.complete:
            self.until = float("inf")
            for other in self.connections:
                if other.kind == "news":
                    self._send(other, "{}")
        return True

    def _answer(self, one: _Connection, line: str) -> None:
        said = {key: value for key, _, value in (word.partition("=") for word in line.split())}
        command = said.get("cmd", "")
        if command == "barrier_in":
            self.waiting.add(one.rank)
            if len(self.waiting) == self.task.size:
                self.waiting.clear()
                for other in self.connections:
                    if other.kind == "mpi":
                        self._send(other, "cmd=barrier_out")
            return
        if command == "abort":
            self._lost(one.rank, "aborted MPI")
            one.finalized = True  # what follows is its end
            return
        one.finalized = one.finalized or command == "finalize"
        self._send(one, f"cmd={self._reply(command, said)}")

    def _reply(self, command: str, said: dict[str, str]) -> str:
        if command == "put":
            self.values[said["key"]] = said["value"]
            return "put_result rc=0 msg=success"
        if command == "get":
            value = self.values.get(said["key"])
            return (
                f"get_result rc=0 msg=success value={value}"
                if value is not None
                else "get_result rc=-1 msg=none"
            )
        return {
            "init": "response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": f"maxes {_LIMITS}",
            "get_appnum": "appnum appnum=0",
            "get_my_kvsname": "my_kvsname kvsname=ddpgrad",
            "get_universe_size": f"universe_size size={self.task.size}",
            "finalize": "finalize_ack",
        }.get(command, f"{command}_result rc=-1 msg=unknown")

    def _lost(self, rank: int, how: str) -> None:
        """Tell all that `rank` has ended so; those that wait for it within MPI cannot hear it, and are cut off."""
        self.until = min(self.until, time.monotonic() + _GRACE_S)
        for one in list(self.connections):
            if one.kind == "news":
                self._send(one, json.dumps({"rank": rank, "how": how}))
            elif one.rank in self.waiting:
                one.finalized = True
                self._close(one)

    def _send(self, one: _Connection, line: str) -> None:
        with contextlib.suppress(OSError):  # its end will be read
            one.socket.sendall(line.encode() + b"\n")

    def _close(self, one: _Connection) -> None:
        self.connections.remove(one)
        self.selector.unregister(one.socket)
        one.socket.close()


def main() -> None:
    """Serve the ranks of the task on standard input."""
    told: dict[str, Any] = json.loads(sys.stdin.readline())
    task = Task(**told)
    listening = socket.create_server(("127.0.0.1" if task.near else "", 0), backlog=task.size + 8)
    print(listening.getsockname()[1], flush=True)
    sys.stdout.close()
    Manager(task, listening).run()


if __name__ == "__main__":
    main()
