"""The store that one process serves on a port, and others reach over the network. It carries plain data, never a pickle."""

from __future__ import annotations

import contextlib
import errno
import hmac
import logging
import os
import secrets
import socket
import socketserver
import struct
import threading
import time
import weakref
from datetime import timedelta
from typing import Any, ClassVar

from ..core import environment
from ..core.errors import TransportError
from .protocol import plain_data
from .store import DistStoreError, Store, Table

_DEFAULT_TIMEOUT = timedelta(seconds=300)
_LONGEST_MESSAGE = 64 << 20
_LENGTH = struct.Struct("!I")
_WORKERS = "init/workers"
# The question for the token, which is no length of a message, and its answer have as many bytes; who proves it has so long.
_ASKS, _PROOF, _PROOF_S = b"DDPT", 32, 10.0

_log = logging.getLogger("ddpgrad.distributed")


class UnreachableError(DistStoreError, TransportError):
    """Nobody serves a store where it was looked for."""


def connect(host: str, port: int, timeout: timedelta, what: str) -> socket.socket:
    """A connection to the store `what`, as soon as somebody serves it there; DistStoreError if nobody does in time."""
    seconds = timeout.total_seconds()
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection((host, port), seconds)
        except OSError as error:
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"nobody serves {what} on {host}:{port}: timed out after {seconds:g} seconds ({error})"
                ) from None
            time.sleep(0.05)


class TCPStore(Store):
    """A store that one process serves on a port, and others reach over the network.

    port: 0, with is_master, takes a free one (see `port`). master_listen_fd: a socket that listens already, to be
    served instead of one on host_name. multi_tenant: several masters of a process share one port. With world_size and wait_for_workers the constructor returns when so many
    have come. Where DDPGRAD_TOKEN is set, who does not know it is refused, with a line in the log; it is never sent,
    and what is said is not encrypted. Without it anybody who reaches the port is served: use a network that you trust.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = _DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        super().__init__(timeout)
        self.host, self.port, self.is_master = host_name, port, is_master
        self.libuvBackend = use_libuv  # what a program asked for; there is one server
        self._lock = threading.Lock()
        self._server: _Server | None = None
        if is_master:
            self._server = _Server.of((host_name, port), master_listen_fd, multi_tenant)
            self.port = self._server.server_address[1]
            self._end_server = weakref.finalize(self, self._server.leave)
        self._connection = connect(self.host, self.port, self.timeout, "a TCPStore")
        weakref.finalize(self, self._connection.close)
        if environment.token():
            self._prove()
        if world_size and wait_for_workers:
            self.add(_WORKERS, 1)
            self._await_workers(world_size)

    def _prove(self) -> None:
        """Show the server that this process knows the token."""
        where = f"the TCPStore on {self.host}:{self.port}"
        self._connection.settimeout(_PROOF_S)
        try:
            asked = receive_exactly(self._connection, _PROOF)
            self._connection.sendall(_proof(environment.token(), asked))
            receive_exactly(self._connection, 1)
        except TimeoutError:
            raise DistStoreError(
                f"{where} asks for no token: set DDPGRAD_TOKEN for all ranks, or for none"
            ) from None
        except OSError as error:
            raise DistStoreError(
                f"{where} refused this process: is DDPGRAD_TOKEN the same? ({error})"
            ) from None
        self._connection.settimeout(self.timeout.total_seconds())

    def close(self) -> None:
        """Leave the store; its server ends with it. Not PyTorch's, where only the garbage collector does this."""
        self._connection.close()
        if self._server is not None:
            self._end_server()

    def _await_workers(self, world_size: int) -> None:
        deadline = time.monotonic() + self.timeout.total_seconds()
        while (come := self.add(_WORKERS, 0)) < world_size:
            if time.monotonic() > deadline:
                seconds = self.timeout.total_seconds()
                raise DistStoreError(
                    f"Timed out after {seconds:g} seconds waiting for clients. {come}/{world_size} clients joined."
                )
            time.sleep(0.005)

    def _do(self, command: str, *arguments: Any) -> Any:
        with self._lock:
            try:
                _send(self._connection, [command, *arguments])
                return _receive(self._connection)
            except (OSError, ValueError) as error:  # gone, or what answers is no TCPStore
                raise DistStoreError(f"the TCPStore on {self.host}:{self.port} is gone ({error})") from None

    def clone(self) -> TCPStore:
        return TCPStore(self.host, self.port, timeout=self.timeout, use_libuv=self.libuvBackend)

    def __repr__(self) -> str:
        return f"TCPStore(host={self.host}, port={self.port}, is_master={self.is_master})"


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    shared: ClassVar[weakref.WeakValueDictionary[int, _Server]] = weakref.WeakValueDictionary()
    """Those that take several masters, by port."""
    _sharing = threading.Lock()

    @classmethod
    def of(cls, address: tuple[str, int], listening: int | None, multi_tenant: bool) -> _Server:
        """A server at `address`, or the one of this process that is there already."""
        with cls._sharing:
            there = cls.shared.get(address[1]) if multi_tenant else None
            if there is not None and there._pid == os.getpid() and there.users:
                there.users += 1
                return there
            try:
                made = cls(address, listening)
            except OSError as error:
                name = errno.errorcode.get(error.errno or 0, "")
                raise TransportError(
                    f"The server socket has failed to listen on any local network address. host: {address[0]}, "
                    f"port: {address[1]}, name: {name}, message: {error.strerror}"
                ) from None
            if multi_tenant:
                cls.shared[made.server_address[1]] = made
        threading.Thread(target=made.serve, name="ddpgrad store", daemon=True).start()
        return made

    def __init__(self, address: tuple[str, int], listening: int | None) -> None:
        super().__init__(address, _Conversation, bind_and_activate=listening is None)
        if listening is not None:
            self.socket.close()
            self.socket = socket.socket(fileno=listening)
            self.server_address = self.socket.getsockname()
        self.table, self.lock, self.users = Table(), threading.Lock(), 1
        self.token = environment.token()
        self.connections: set[socket.socket] = set()
        self._pid = os.getpid()

    def serve(self) -> None:
        self.serve_forever(poll_interval=0.05)

    def leave(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked copy has no thread that serves
        with self._sharing:
            self.users -= 1
            if self.users:
                return
        self.shutdown()
        self.server_close()
        for connection in self.connections.copy():
            with contextlib.suppress(OSError):  # its other end has gone just now
                connection.shutdown(socket.SHUT_RDWR)


class _Conversation(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        server.connections.add(self.request)
        said = False
        try:
            self._let_in(server.token)
            while True:
                command, *arguments = _receive(self.request)
                with server.lock:
                    answer = server.table.run(command, *arguments)
                _send(self.request, answer)
                said = True
        except (OSError, KeyError, TypeError, ValueError) as error:
            # Who leaves, or only looks whether somebody listens, is nobody to speak of.
            if not said and not isinstance(error, (ConnectionError, TimeoutError)):
                _log.warning("refused a connection from %s to a TCPStore: %s", self.client_address[0], error)
        finally:
            server.connections.discard(self.request)

    def _let_in(self, token: bytes) -> None:
        """Raise OSError for who does not know the token, where there is one."""
        if not token:
            return
        asked = _ASKS + secrets.token_bytes(_PROOF - len(_ASKS))
        self.request.settimeout(_PROOF_S)
        self.request.sendall(asked)
        try:
            answered = receive_exactly(self.request, _PROOF)
        except TimeoutError:
            raise OSError("it does not know DDPGRAD_TOKEN") from None
        if not hmac.compare_digest(answered, _proof(token, asked)):
            raise OSError("it does not know DDPGRAD_TOKEN")
        self.request.settimeout(None)
        self.request.sendall(b"1")


def _proof(token: bytes, asked: bytes) -> bytes:
    return hmac.digest(token, asked, "sha256")


def _send(connection: socket.socket, content: Any) -> None:
    data = plain_data.encode(content)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _receive(connection: socket.socket) -> Any:
    header = receive_exactly(connection, _LENGTH.size)
    if header == _ASKS:
        raise OSError("it asks for DDPGRAD_TOKEN, which is not set here")
    (length,) = _LENGTH.unpack(header)
    if length > _LONGEST_MESSAGE:
        raise OSError(f"a message of {length} bytes is too long")
    return plain_data.decode(receive_exactly(connection, length))


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes; ConnectionError where the other end closes before."""
    data = bytearray()
    while len(data) < count:
        part = connection.recv(min(count - len(data), 1 << 16))
        if not part:
            raise ConnectionError("the other end is closed")
        data += part
    return bytes(data)
