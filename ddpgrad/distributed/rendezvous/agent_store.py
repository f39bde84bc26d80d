"""The store that torchrun's agent serves at MASTER_ADDR:MASTER_PORT, in the language of PyTorch's TCPStore.

Each request is a byte for the command, and its arguments: texts and values with their length in front, as 64-bit
numbers of the machine's byte order. Source: `TCPStoreBackend.hpp` and `TCPStore.cpp` of PyTorch 2.
"""

from __future__ import annotations

import struct
import threading
from datetime import timedelta
from typing import Any

from ..store import DistStoreError, Store
from ..tcp_store import connect, receive_exactly

_MAGIC = 0x3C85F7CE
_VALIDATE, _SET, _COMPARE_SET, _GET, _ADD, _CHECK, _NUM_KEYS, _DELETE, _APPEND = 0, 1, 2, 3, 4, 5, 7, 8, 9
_LONGEST = 64 << 20


class AgentStore(Store):
    """A client of that store; torchrun's agent is there before its workers are."""

    def __init__(self, host: str, port: int, timeout: timedelta) -> None:
        super().__init__(timeout)
        self._where = f"{host}:{port}"
        self._lock = threading.Lock()
        self._connection = connect(host, port, timeout, "torchrun's store")
        self._connection.sendall(struct.pack("=BI", _VALIDATE, _MAGIC))

    def _do(self, command: str, *arguments: Any) -> Any:
        ask = getattr(self, f"_{command}", None)
        if ask is None:
            raise NotImplementedError(f"torchrun's store: `{command}` is not asked of it")
        with self._lock:
            try:
                return ask(*arguments)
            except OSError as error:
                raise DistStoreError(f"torchrun's store on {self._where} is gone ({error})") from None

    def _set(self, key: str, value: bytes) -> None:
        self._send(_SET, key, value)

    def _get(self, key: str) -> bytes | None:
        if not self._check([key]):  # the store would wait for it
            return None
        self._send(_GET, key)
        return self._value()

    def _add(self, key: str, amount: int) -> int:
        self._send(_ADD, key, amount)
        return self._number("=q")

    def _append(self, key: str, value: bytes) -> None:
        self._send(_APPEND, key, value)

    def _compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        self._send(_COMPARE_SET, key, expected, desired)
        return self._value()

    def _check(self, keys: list[str]) -> bool:
        self._send(_CHECK, len(keys), *keys)
        return self._number("=B") == 0

    def _delete(self, key: str) -> bool:
        self._send(_DELETE, key)
        return self._number("=q") > 0

    def _count(self) -> int:
        self._send(_NUM_KEYS)
        return self._number("=q")

    def _send(self, command: int, *arguments: str | bytes | int) -> None:
        parts = [bytes([command])]
        for one in arguments:
            if isinstance(one, int):
                parts.append(struct.pack("=q", one))
                continue
            # PyTorch's own clients put a slash before their keys.
            data = f"/{one}".encode() if isinstance(one, str) else one
            parts += [struct.pack("=Q", len(data)), data]
        self._connection.sendall(b"".join(parts))

    def _value(self) -> bytes:
        length = self._number("=Q")
        if length > _LONGEST:
            raise OSError(f"a value of {length} bytes is too long")
        return receive_exactly(self._connection, length)

    def _number(self, form: str) -> int:
        return struct.unpack(form, receive_exactly(self._connection, struct.calcsize(form)))[0]
