"""The keeper of a host: it holds snapshots of a job over several hosts from one attempt to the next.

    python -P -m ddpgrad.launcher.job.keeper ADDRESS

The first rank of a host that asks for it starts it, in a session of its own, so that it outlives mpiexec. It keeps a connection
to the launcher at ADDRESS (see `failure/channel.py`), and ends with that. Ranks of its host open its memory; those of
others reach it over TCP, by lines after the job's token, each with a place in the memory and a number of bytes:

    write PLACE BYTES    these bytes follow
    read PLACE BYTES     these bytes are the answer
    sync 0 0             the answer is a line: ok, or why something before it has failed
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Sequence
from io import BufferedIOBase
from typing import IO, BinaryIO, cast

from ddpgrad.core import environment
from ddpgrad.distributed.failure import tcp_keepalive
from ddpgrad.distributed.failure.channel import Sender, connect

from . import snapshot_memory

_PIECE = 1 << 20
_LONGEST_LINE = 256
# A keeper is there, or has ended, before that.
_START_S = 20.0
_LOOK_S = 0.02


def on_this_host(address: str) -> tuple[str, str]:
    """The memory of this host's keeper, which is started where there is none, and its place, for `Remote`. OSError where that fails."""
    until, started = time.monotonic() + _START_S, False
    while True:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_START_S)
            try:
                asking.connect(_name(address))
            except ConnectionRefusedError:
                if time.monotonic() > until:
                    raise OSError("the process that is to keep them on this host does not start") from None
            else:
                user = struct.unpack("iII", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
                if user != os.geteuid():
                    raise OSError("another user's process keeps them on this host")
                found, place = asking.makefile().readline().split()
                return found, f"{_token(address)}@{place}"
        if not started:
            _start(address)
            started = True
        time.sleep(_LOOK_S)


def _start(address: str) -> None:
    # The pipes of mpiexec, which waits for their ends, are not for a process that outlives it.
    nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    words = [sys.executable, "-P", "-m", __name__, address]
    os.posix_spawn(sys.executable, words, environment.mapping(), file_actions=nothing, setsid=True)


def _token(address: str) -> str:
    return address.removeprefix("tcp:").partition("@")[0]


def _name(address: str) -> str:
    """Of the socket for this host's ranks; everybody can read it."""
    return f"\0ddpgrad-keeper-{hashlib.sha256(_token(address).encode()).hexdigest()[:16]}"


class Remote:
    """The memory of another host's keeper, at `place`. All methods raise OSError where it cannot be reached."""

    def __init__(self, place: str) -> None:
        token, port, hosts = place.split("@")
        self._connection = connect(hosts.split(","), int(port))
        self._connection.settimeout(None)
        tcp_keepalive.enable(self._connection, peer_reads=True)
        self._answers = self._connection.makefile("rb")
        self._connection.sendall(token.encode() + b"\n")

    def write(self, place: int, data: bytes | memoryview) -> None:
        """Begin to write `data` there; `sync` tells the outcome."""
        self._connection.sendall(f"write {place} {len(data)}\n".encode())
        self._connection.sendall(data)

    def sync(self) -> None:
        """Return when all has been written."""
        self._connection.sendall(b"sync 0 0\n")
        answer = self._answers.readline().decode().strip()
        if answer != "ok":
            raise OSError(answer or "its keeper has ended")

    def read_into(self, place: int, size: int, file: IO[bytes]) -> None:
        """Copy `size` bytes to the same place of `file`."""
        self._connection.sendall(f"read {place} {size}\n".encode())
        _copy(self._answers, place, size, file.fileno())

    def close(self) -> None:
        self._answers.close()
        self._connection.close()


def _copy(source: BinaryIO | BufferedIOBase, place: int, size: int, to: int) -> None:
    """Write the next `size` bytes of `source` at `place` of the file `to`."""
    while size:
        piece = source.read(min(size, _PIECE))
        if not piece:
            raise OSError("the connection to a keeper has ended")
        written = memoryview(piece)
        while written:
            count = os.pwrite(to, written, place)
            written, place, size = written[count:], place + count, size - count


class _Requests(socketserver.StreamRequestHandler):
    timeout = _START_S  # until it has shown the token

    def handle(self) -> None:
        tcp_keepalive.enable(self.connection, peer_reads=True)
        server = cast(_Server, self.server)
        token = server.token.encode() + b"\n"
        if not secrets.compare_digest(self.rfile.readline(len(token)), token):
            return
        self.connection.settimeout(None)
        with contextlib.suppress(OSError):  # the other host has gone
            while line := self.rfile.readline(_LONGEST_LINE):
                self._obey(server.memory, *line.decode().split())

    def _obey(self, memory: int, what: str, place: str, size: str) -> None:
        if what == "write":
            try:
                _copy(self.rfile, int(place), int(size), memory)
            except OSError as error:
                self.wfile.write(f"{error}\n".encode())
                raise
        elif what == "read":
            with open(memory, "rb", closefd=False) as file:
                self.connection.sendfile(file, int(place), int(size))
        else:
            self.wfile.write(b"ok\n")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, near: str, token: str, memory: int) -> None:
        super().__init__((near, 0), _Requests)
        self.token, self.memory = token, memory

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever sent no request of ours is no rank."""


def main(argv: Sequence[str]) -> int:
    """Be the keeper of this host for the job at the address `argv[0]`, to its end; at once where there is one already."""
    [address] = argv
    # mpiexec waits for the ends of what the rank has from it, which started this process.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    asked = socket.socket(socket.AF_UNIX)
    try:
        asked.bind(_name(address))
    except OSError:  # another rank of this host has started it, too
        return 0
    found, descriptor = snapshot_memory.new()
    launcher = Sender(address)
    here = launcher.own_address()
    near = here == "127.0.0.1"
    server = _Server(here if near else "", _token(address), descriptor)
    names = [here] if near else [here, socket.gethostname()]
    answer = f"{found} {server.server_address[1]}@{','.join(names)}\n".encode()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=_answer, args=(asked, answer), daemon=True).start()
    with contextlib.suppress(OSError):  # the launcher's host is lost
        while os.read(launcher.fd, 1):
            pass
    return 0


def _answer(asked: socket.socket, answer: bytes) -> None:
    asked.listen(128)
    while True:
        asking, _ = asked.accept()
        with asking, contextlib.suppress(OSError):
            asking.sendall(answer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
