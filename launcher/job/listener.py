"""Accepts the connections of a job's processes: on a Unix socket, or over TCP with the job's token."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure import tcp_keepalive

from .plan import Plan

# TCP connections that have not sent the token yet, beside those of the job's own processes, which may all come at once;
# the oldest makes room for the next.
_MAX_PENDING = 64


@dataclass(eq=False)
class _Pending:
    """A TCP connection that has not sent the whole token yet."""

    fd: int
    received: bytes = b""


class Listener:
    """The address of a job's launcher. `on_process` is called with each new connection: (fd, process number or 0)."""

    def __init__(
        self, plan: Plan, selector: selectors.BaseSelector, on_process: Callable[[int, int], object]
    ) -> None:
        if sys.platform != "linux":
            raise LaunchError("--mpi works on Linux only; start the script with mpiexec directly")
        self._selector = selector
        self._on_process = on_process
        self._token, self._procs = b"", plan.procs
        self._pending: list[_Pending] = []
        self.between_hosts = bool(plan.hosts or plan.slurm)
        self._socket, self.address = self._over_tcp(plan) if self.between_hosts else self._on_this_host(plan)
        self._socket.setblocking(False)
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def _on_this_host(self, plan: Plan) -> tuple[socket.socket, str]:
        # The end of a Unix connection is known at once, that of a TCP connection only when the kernel comes
        # to it: sometimes too late to tell which process died first.
        name = f"ddpgrad-{secrets.token_hex(6)}"
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(f"\0{name}")
        listening.listen(plan.procs)
        return listening, f"unix:{name}"

    def _over_tcp(self, plan: Plan) -> tuple[socket.socket, str]:
        """As `_on_this_host`, for processes of other hosts. Anybody may connect, so each begins with the token."""
        token = secrets.token_hex(16)
        self._token = f"{token}\n".encode()
        # If all hosts are this one, now and later, no port needs to be open to others.
        names = [host.name for host in plan.hosts] or [""]
        near = plan.hosts_from is None and all(name in ("localhost", "127.0.0.1") for name in names)
        listening = socket.create_server(("127.0.0.1" if near else "", 0), backlog=max(128, plan.procs))
        here = ["127.0.0.1"] if near else [address_towards(names[0]), socket.gethostname()]
        if plan.nodes is not None:
            here = [plan.nodes.address]
        names_here = ",".join(dict.fromkeys(filter(None, here)))
        return listening, f"tcp:{token}@{listening.getsockname()[1]}@{names_here}"

    def accept_all(self) -> None:
        """Accept all connections that are already waiting."""
        while self._accept(self._socket.fileno()):
            pass
        for pending in self._pending[:]:
            self._check_token(pending)

    def close(self) -> None:
        for pending in self._pending[:]:
            self._drop(pending)
        self._selector.unregister(self._socket)
        self._socket.close()

    def _accept(self, fd: int) -> bool:
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return False
        if self.between_hosts:
            self._await_token(connection)
            return True
        pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user == os.getuid():
            self._on_process(connection.detach(), pid)
        else:
            connection.close()  # any user of this host can connect
        return True

    def _await_token(self, connection: socket.socket) -> None:
        if len(self._pending) >= _MAX_PENDING + self._procs:
            self._drop(self._pending[0])
        tcp_keepalive.enable(connection, peer_reads=True)
        pending = _Pending(connection.detach())
        self._pending.append(pending)
        os.set_blocking(pending.fd, False)
        self._selector.register(pending.fd, selectors.EVENT_READ, lambda fd: self._check_token(pending))

    def _check_token(self, pending: _Pending) -> None:
        """Read on; hand over a connection that has sent the token, and close one that sends anything else."""
        try:
            data = os.read(pending.fd, len(self._token) - len(pending.received))
        except BlockingIOError:
            return
        except OSError:  # reset, or its host is gone
            data = b""
        pending.received += data
        if not data or not self._token.startswith(pending.received):
            self._drop(pending)
        elif pending.received == self._token:
            self._pending.remove(pending)
            self._selector.unregister(pending.fd)
            self._on_process(pending.fd, 0)

    def _drop(self, pending: _Pending) -> None:
        self._pending.remove(pending)
        self._selector.unregister(pending.fd)
        os.close(pending.fd)


def address_towards(host: str) -> str:
    """The address of this host as `host` sees it; '' if it is unknown."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        return probe.getsockname()[0]
    return ""
