"""Key-value stores by which processes tell each other small things, with PyTorch's names.

Source of names and semantics: https://pytorch.org/docs/stable/distributed.html#distributed-key-value-store.
Values are bytes; a text is stored as UTF-8. They are for programs that use one themselves, and for ranks that
meet without a launcher (`rendezvous`). Files and sockets carry plain data, never a pickle.
"""

from __future__ import annotations

import contextlib
import fcntl
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
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from ..core import environment
from ..core.errors import DistributedError
from .protocol import plain_data

_DEFAULT_TIMEOUT = timedelta(seconds=300)
_LONGEST_MESSAGE = 64 << 20
_LENGTH = struct.Struct("!I")
_WORKERS = "init/workers"
# The question for the token, which is no length of a message, and its answer have as many bytes; who proves it has so long.
_ASKS, _PROOF, _PROOF_S = b"DDPT", 32, 10.0

_log = logging.getLogger("ddpgrad.distributed")


class DistStoreError(DistributedError):
    """A key did not come in time, or a store cannot be reached."""


class _Table:
    """The keys and values of one store, and what can be done with them at once."""

    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        self.content: dict[str, bytes] = {} if content is None else content

    def run(self, command: str, *arguments: Any) -> Any:
        """Carry out one of the commands below."""
        return _COMMANDS[command](self.content, *arguments)


def _add(content: dict[str, bytes], key: str, amount: int) -> int:
    total = int(content.get(key, b"0")) + amount
    content[key] = str(total).encode()
    return total


def _compare_set(content: dict[str, bytes], key: str, expected: bytes, desired: bytes) -> bytes:
    now = content.get(key)
    if now == expected or (now is None and not expected):
        content[key] = desired
        return desired
    return expected if now is None else now


_COMMANDS: dict[str, Callable[..., Any]] = {
    "set": lambda content, key, value: content.__setitem__(key, value),
    "get": lambda content, key: content.get(key),
    "add": _add,
    "append": lambda content, key, value: content.__setitem__(key, content.get(key, b"") + value),
    "compare_set": _compare_set,
    "check": lambda content, keys: all(key in content for key in keys),
    "delete": lambda content, key: content.pop(key, None) is not None,
    "count": lambda content: len(content),
}


class Store(ABC):
    """Values by key, the same for all who use the store."""

    def __init__(self, timeout: timedelta = _DEFAULT_TIMEOUT) -> None:
        self.timeout = timeout

    @abstractmethod
    def _do(self, command: str, *arguments: Any) -> Any:
        """Carry out a command on the table, alone."""

    def set(self, key: str, value: str | bytes) -> None:
        """Store `value` under `key`."""
        self._do("set", key, _bytes(value))

    def get(self, key: str) -> bytes:
        """The value of `key`; waits until there is one. Raises DistStoreError after the store's timeout."""
        self.wait([key])
        return self._do("get", key)

    def look(self, key: str) -> bytes | None:
        """The value of `key`, or None if there is none yet, in one question. Not PyTorch's."""
        return self._do("get", key)

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, which begins at 0; returns its new value."""
        return self._do("add", key, int(amount))

    def append(self, key: str, value: str | bytes) -> None:
        """Put `value` behind what is stored under `key`."""
        self._do("append", key, _bytes(value))

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Store the desired value if the expected one is there (empty: or none); returns what is there then."""
        return self._do("compare_set", key, _bytes(expected_value), _bytes(desired_value))

    def check(self, keys: Sequence[str]) -> bool:
        """True when all `keys` have a value."""
        return self._do("check", list(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return when all `keys` have a value. Raises DistStoreError after `timeout`, or the store's."""
        limit = (timeout or self.timeout).total_seconds()
        deadline, pause = time.monotonic() + limit, 0.0005
        while not self.check(keys):
            if time.monotonic() > deadline:
                missing = [key for key in keys if not self.check([key])]
                raise DistStoreError(f"wait timeout after {limit:g} seconds: nobody set {', '.join(missing)}")
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def delete_key(self, key: str) -> bool:
        """Forget `key`; True if it was there."""
        return self._do("delete", key)

    def num_keys(self) -> int:
        """How many keys have a value."""
        return self._do("count")

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Store several values."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Several values; waits for them."""
        return [self.get(key) for key in keys]

    def set_timeout(self, timeout: timedelta) -> None:
        """How long `get` and `wait` wait from now on."""
        self.timeout = timeout


class HashStore(Store):
    """A store for the threads of one process."""

    def __init__(self) -> None:
        super().__init__()
        self._table, self._lock = _Table(), threading.Lock()

    def _do(self, command: str, *arguments: Any) -> Any:
        with self._lock:
            return self._table.run(command, *arguments)


class FileStore(Store):
    """A store in a file that all processes reach. world_size is accepted as PyTorch's, and not needed."""

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self.path = os.fspath(file_name)

    def _do(self, command: str, *arguments: Any) -> Any:
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            except OSError as error:
                raise DistStoreError(
                    f"FileStore: {self.path} cannot be locked ({error}), as its file system has no locks; use a TCPStore"
                ) from None
            before = file.read()
            table = _Table(plain_data.decode(before) if before else None)
            result = table.run(command, *arguments)
            after = plain_data.encode(table.content)
            if after != before:
                file.seek(0)
                file.truncate()
                file.write(after)
            return result


class PrefixStore(Store):
    """Another store, whose keys all begin with `prefix` and a slash."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__(store.timeout)
        self.prefix, self.underlying_store = prefix, store

    def _do(self, command: str, *arguments: Any) -> Any:
        if command == "check":
            return self.underlying_store._do(command, [f"{self.prefix}/{key}" for key in arguments[0]])
        if arguments:
            arguments = (f"{self.prefix}/{arguments[0]}", *arguments[1:])
        return self.underlying_store._do(command, *arguments)


def connect(host: str, port: int, timeout: timedelta, what: str) -> socket.socket:
    """A connection to the store `what`, as soon as somebody serves it there; DistStoreError if nobody does in time."""
    seconds = timeout.total_seconds()
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection((host, port), seconds)
        except OSError as error:
            if time.monotonic() > deadline:
                raise DistStoreError(f"nobody serves {what} on {host}:{port} ({error})") from None
            time.sleep(0.05)


class TCPStore(Store):
    """A store that one process serves on a port, and others reach over the network.

    port: 0, with is_master, takes a free one (see `port`). master_listen_fd: a socket that listens already, to be
    served instead of one on host_name. With world_size and wait_for_workers the constructor returns when so many
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
        master_listen_fd: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(timeout)
        self.host, self.port, self.is_master = host_name, port, is_master
        self._lock = threading.Lock()
        self._server: _Server | None = None
        if is_master:
            self._server = _Server((host_name, port), master_listen_fd)
            self.port = self._server.server_address[1]
            threading.Thread(target=self._server.serve, name="ddpgrad store", daemon=True).start()
            self._end_server = weakref.finalize(self, self._server.end)
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
            asked = _exactly(self._connection, _PROOF)
            self._connection.sendall(_proof(environment.token(), asked))
            _exactly(self._connection, 1)
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
                raise DistStoreError(f"{come} of {world_size} workers came to the TCPStore in time")
            time.sleep(0.005)

    def _do(self, command: str, *arguments: Any) -> Any:
        with self._lock:
            try:
                _send(self._connection, [command, *arguments])
                return _receive(self._connection)
            except (OSError, ValueError) as error:  # gone, or what answers is no TCPStore
                raise DistStoreError(f"the TCPStore on {self.host}:{self.port} is gone ({error})") from None


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], listening: int | None) -> None:
        super().__init__(address, _Conversation, bind_and_activate=listening is None)
        if listening is not None:
            self.socket.close()
            self.socket = socket.socket(fileno=listening)
            self.server_address = self.socket.getsockname()
        self.table, self.lock = _Table(), threading.Lock()
        self.token = environment.token()
        self.connections: set[socket.socket] = set()
        self._pid = os.getpid()

    def serve(self) -> None:
        self.serve_forever(poll_interval=0.05)

    def end(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked copy has no thread that serves
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
            answered = _exactly(self.request, _PROOF)
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
    header = _exactly(connection, _LENGTH.size)
    if header == _ASKS:
        raise OSError("it asks for DDPGRAD_TOKEN, which is not set here")
    (length,) = _LENGTH.unpack(header)
    if length > _LONGEST_MESSAGE:
        raise OSError(f"a message of {length} bytes is too long")
    return plain_data.decode(_exactly(connection, length))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(min(count - len(data), 1 << 16))
        if not part:
            raise ConnectionError("the other end is closed")
        data += part
    return bytes(data)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
