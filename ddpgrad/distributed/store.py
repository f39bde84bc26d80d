"""Key-value stores by which processes tell each other small things, with PyTorch's names.

Source of names and semantics: https://pytorch.org/docs/stable/distributed.html#distributed-key-value-store.
Values are bytes; a text is stored as UTF-8. They are for programs that use one themselves, and for ranks that
meet without a launcher (`rendezvous`). Files carry plain data, never a pickle. `tcp_store` has the one of several hosts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from ..core.errors import DistributedError
from .protocol import plain_data

_DEFAULT_TIMEOUT = timedelta(seconds=300)
_USERS, _GONE = "refcount/", "cleanup/"


class DistStoreError(DistributedError):
    """A key did not come in time, or a store cannot be reached."""


class QueueEmptyError(DistStoreError):
    """Nothing is in a queue, and the caller does not want to wait."""


class Table:
    """The keys and values of one store, and its queues, and what can be done with them at once."""

    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        self.content: dict[str, bytes] = {} if content is None else content
        self.queues: dict[str, deque[bytes]] = {}

    def run(self, command: str, *arguments: Any) -> Any:
        """Carry out one of the commands below."""
        if command not in _COMMANDS:
            raise KeyError(command)
        return getattr(self, f"_{command}")(*arguments)

    def _set(self, key: str, value: bytes) -> None:
        self.content[key] = value

    def _get(self, key: str) -> bytes | None:
        return self.content.get(key)

    def _add(self, key: str, amount: int) -> int:
        total = int(self.content.get(key, b"0")) + amount
        self.content[key] = str(total).encode()
        return total

    def _append(self, key: str, value: bytes) -> None:
        self.content[key] = self.content.get(key, b"") + value

    def _compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        now = self.content.get(key)
        if now == expected or (now is None and not expected):
            self.content[key] = desired
            return desired
        return expected if now is None else now

    def _check(self, keys: Sequence[str]) -> bool:
        return all(key in self.content for key in keys)

    def _delete(self, key: str) -> bool:
        return self.content.pop(key, None) is not None

    def _count(self) -> int:
        return len(self.content)

    def _keys(self) -> list[str]:
        return list(self.content)

    def _push(self, key: str, value: bytes) -> None:
        self.queues.setdefault(key, deque()).append(value)

    def _pop(self, key: str) -> bytes | None:
        queue = self.queues.get(key)
        return queue.popleft() if queue else None

    def _length(self, key: str) -> int:
        return len(self.queues.get(key, ()))


_COMMANDS = frozenset(
    [
        "set", "get", "add", "append", "compare_set", "check", "delete", "count", "keys", "push", "pop",
        "length",
    ]
)  # fmt: skip


class Store:
    """Values by key, the same for all who use the store. A class of a program's own overrides what it has."""

    def __init__(self, timeout: timedelta = _DEFAULT_TIMEOUT) -> None:
        self._timeout = timeout

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait."""
        return self._timeout

    def set_timeout(self, timeout: timedelta | float) -> None:
        """How long `get` and `wait` wait from now on."""
        self._timeout = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)

    def _do(self, command: str, *arguments: Any) -> Any:
        """Carry out a command on the table, alone."""
        raise NotImplementedError(f"{type(self).__name__} is a Store without `{command}`")

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
        return self._do("check", _several(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        """Return when all `keys` have a value. Raises DistStoreError after `timeout`, or the store's."""
        keys, limit = _several(keys), self._limit(timeout)
        if not _until(lambda: self.check(keys), limit):
            missing = [key for key in keys if not self.check([key])]
            raise DistStoreError(f"wait timeout after {limit:g} seconds: nobody set {', '.join(missing)}")

    def delete_key(self, key: str) -> bool:
        """Forget `key`; True if it was there."""
        return self._do("delete", key)

    def num_keys(self) -> int:
        """How many keys have a value."""
        return self._do("count")

    def list_keys(self) -> list[str]:
        """The keys that have a value."""
        return [key for key in self._do("keys") if key not in (_USERS, _GONE)]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Store several values."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Several values; waits for them."""
        return [self.get(key) for key in keys]

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put `value` at the end of the queue `key`, which is no key of the other methods."""
        self._do("push", key, _bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take what is first in the queue `key`; waits for something if `block`, else QueueEmptyError."""
        found: list[bytes] = []

        def take() -> bool:
            value = self._do("pop", key)
            if value is not None:
                found.append(value)
            return bool(found)

        limit = self._limit(None)
        if not block and not take():
            raise QueueEmptyError(f"queue {key} is empty")
        if not found and not _until(take, limit):
            raise DistStoreError(f"wait timeout after {limit:g} seconds: nobody pushed to the queue {key}")
        return found[0]

    def queue_len(self, key: str) -> int:
        """How many values wait in the queue `key`."""
        return self._do("length", key)

    def barrier(self, key: str, world_size: int, timeout: timedelta | float | None = None) -> None:
        """Return when `world_size` callers have come with this `key`."""
        if self.add(f"{key}/come", 1) == world_size:
            self.set(f"{key}/all", b"1")
        self.wait([f"{key}/all"], timeout)

    def has_extended_api(self) -> bool:
        """Whether `append`, `multi_get`, `multi_set` and queues are one step each, whoever else uses the store."""
        return True

    def clone(self) -> Store:
        """The same store once more, for another thread."""
        raise NotImplementedError(f"{type(self).__name__} is a Store without `clone`")

    def _limit(self, timeout: timedelta | float | None) -> float:
        given = self.timeout if timeout is None else timeout
        return given.total_seconds() if isinstance(given, timedelta) else float(given)


def _until(reached: Callable[[], bool], limit: float) -> bool:
    """Ask until the answer is yes, for `limit` seconds; the last answer."""
    deadline, pause = time.monotonic() + limit, 0.0005
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    return True


class HashStore(Store):
    """A store for the threads of one process."""

    def __init__(self) -> None:
        super().__init__()
        self._table, self._lock = Table(), threading.Lock()

    def _do(self, command: str, *arguments: Any) -> Any:
        with self._lock:
            return self._table.run(command, *arguments)

    def clone(self) -> HashStore:
        other = HashStore()
        other._table, other._lock = self._table, self._lock
        return other


class FileStore(Store):
    """A store in a file that all processes reach. world_size: the file is removed when so many users have left it."""

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self.path, self._world_size = os.fspath(file_name), world_size
        if world_size > 0:
            self._do("add", _USERS, 1)
            weakref.finalize(self, _leave, self.path, world_size, os.getpid())

    def _do(self, command: str, *arguments: Any) -> Any:
        if command in ("push", "pop", "length"):
            raise NotImplementedError("FileStore: no queues; use a TCPStore")
        return _in_file(self.path, lambda table: table.run(command, *arguments))

    def has_extended_api(self) -> bool:
        return False

    def clone(self) -> FileStore:
        return FileStore(self.path, self._world_size)


def _in_file(path: str, use: Callable[[Table], Any], create: int = os.O_CREAT) -> Any:
    """Carry out `use` on the table in the file, which nobody else uses meanwhile."""
    handle = os.open(path, os.O_RDWR | create | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        except OSError as error:
            raise DistStoreError(
                f"FileStore: {path} cannot be locked ({error}), as its file system has no locks; use a TCPStore"
            ) from None
        before = file.read()
        table = Table(plain_data.decode(before) if before else None)
        result = use(table)
        after = plain_data.encode(table.content)
        if after != before:
            file.seek(0)
            file.truncate()
            file.write(after)
        return result


def _leave(path: str, world_size: int, pid: int) -> None:
    """A user of the file has gone: it is removed with the last one."""
    if os.getpid() != pid:
        return  # a forked copy was no user of its own

    def count(table: Table) -> None:
        gone = table.run("add", _GONE, 1)
        if table.run("add", _USERS, -1) == 0 and gone >= world_size:
            os.unlink(path)

    with contextlib.suppress(FileNotFoundError):
        _in_file(path, count, 0)


class PrefixStore(Store):
    """Another store, whose keys all begin with `prefix` and a slash."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self.prefix, self.underlying_store = prefix, store

    @property
    def timeout(self) -> timedelta:
        return self.underlying_store.timeout

    def set_timeout(self, timeout: timedelta | float) -> None:
        self.underlying_store.set_timeout(timeout)

    @property
    def _underlying_non_prefix_store(self) -> Store:
        inner = self.underlying_store
        return inner._underlying_non_prefix_store if isinstance(inner, PrefixStore) else inner

    def _name(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    # By the methods of the other store, which may be of a program's own class.

    def set(self, key: str, value: str | bytes) -> None:
        self.underlying_store.set(self._name(key), _bytes(value))

    def check(self, keys: Sequence[str]) -> bool:
        return self.underlying_store.check([self._name(key) for key in _several(keys)])

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        names = [self._name(key) for key in _several(keys)]
        self.underlying_store.wait(names, *(() if timeout is None else (timeout,)))

    def num_keys(self) -> int:
        return self.underlying_store.num_keys()

    def list_keys(self) -> list[str]:
        keys, start = self.underlying_store.list_keys(), f"{self.prefix}/"
        return [key.removeprefix(start) for key in keys if key.startswith(start)]

    def has_extended_api(self) -> bool:
        return self.underlying_store.has_extended_api()

    def clone(self) -> PrefixStore:
        return PrefixStore(self.prefix, self.underlying_store.clone())


def _of_a_key(name: str) -> Callable[..., Any]:
    """A method of PrefixStore that asks the other store of the key's whole name."""
    return lambda self, key, *args, **options: getattr(self.underlying_store, name)(
        self._name(key), *args, **options
    )


for _name in (
    "get", "look", "add", "append", "compare_set", "delete_key", "queue_push", "queue_pop", "queue_len",
):  # fmt: skip
    setattr(PrefixStore, _name, _of_a_key(_name))


def _several(keys: Sequence[str]) -> list[str]:
    if isinstance(keys, str):
        raise TypeError(f"expected a list of keys, got the text {keys!r}")
    return list(keys)


def _bytes(value: str | bytes) -> bytes:
    if not isinstance(value, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"a store keeps texts and bytes, got {type(value).__name__}")
    return value.encode() if isinstance(value, str) else bytes(value)
