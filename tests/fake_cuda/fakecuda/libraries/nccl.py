"""NCCL between processes of one host: messages are files in shared memory, which appear when they are whole.

A group is carried out where it ends, and returns when what it receives is there. The real NCCL returns at once and
lets the stream wait; so what would hang there may hang here, and what relies on the overlap is not shown.
"""

import ctypes
import threading
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .abi import Status, captured, current_device, finish, function, give, view, write

INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR = 3, 4, 5, 6
_ID_BYTES = 128
_BYTES = {0: 1, 1: 1, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2}  # by ncclDataType_t
_MOST_SECONDS = 120.0  # that a process waits for another one: the real NCCL waits for ever


@dataclass
class Communicator:
    name: str
    rank: int
    size: int
    device: int
    sent: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    received: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    aborted: bool = False

    def file(self, source: int, target: int, number: int) -> Path:
        return Path("/dev/shm") / f"fake-nccl-{self.name}-{source}-{target}-{number}"


@dataclass
class Transfer:
    communicator: Communicator
    sends: bool
    memory: Any
    peer: int
    stream: int


class Group(threading.local):
    """The transfers of a thread between ncclGroupStart and ncclGroupEnd."""

    def __init__(self) -> None:
        self.depth, self.transfers = 0, list[Transfer]()


_group = Group()
_communicators: dict[int, Communicator] = {}

function("ncclGetVersion", "p")(lambda out: write(out, 22700))


@function("ncclGetUniqueId", "p")
def get_unique_id(out):
    told = uuid.uuid4().hex.encode().ljust(_ID_BYTES, b"\xff")  # beyond the name bytes that no text has
    ctypes.memmove(out, told, _ID_BYTES)


class UniqueId(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * _ID_BYTES),)


def init_rank(out: int, size: int, unique: UniqueId, rank: int, config: int) -> int:
    """Declared below: its third argument is a structure."""
    told = bytes(unique)
    if not told.endswith(b"\xff"):
        return INVALID_ARGUMENT
    number = max(_communicators, default=0x10) + 0x10
    _communicators[number] = Communicator(told[:32].decode(), rank, size, current_device())
    write(out, number, np.uintp)
    return 0


INIT_RANK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int, ctypes.c_void_p
)(init_rank)


def _known(handle: int) -> Communicator:
    if handle not in _communicators:
        raise Status(INVALID_ARGUMENT, "there is no such communicator")
    return _communicators[handle]


@function("ncclCommAbort", "p")
def abort(handle):
    _known(handle).aborted = True


@function("ncclCommDestroy", "p")
def destroy(handle):
    _known(handle)
    del _communicators[handle]


function("ncclCommCount", "pp")(lambda handle, out: write(out, _known(handle).size))
function("ncclCommUserRank", "pp")(lambda handle, out: write(out, _known(handle).rank))
function("ncclCommCuDevice", "pp")(lambda handle, out: write(out, _known(handle).device))
function("ncclCommGetAsyncError", "pp")(
    lambda handle, out: write(out, REMOTE_ERROR if _known(handle).aborted else 0)
)


@function("ncclGroupStart", "")
def group_start():
    _group.depth += 1


@function("ncclGroupEnd", "")
def group_end():
    if not _group.depth:
        raise Status(INVALID_USAGE, "ncclGroupEnd without ncclGroupStart")
    _group.depth -= 1
    if not _group.depth:
        _carry_out()


@function("ncclSend", "pziipp")
def send(address, count, kind, peer, handle, stream):
    _add(handle, True, address, count, kind, peer, stream)


@function("ncclRecv", "pziipp")
def receive(address, count, kind, peer, handle, stream):
    _add(handle, False, address, count, kind, peer, stream)


def _add(handle: int, sends: bool, address: int, count: int, kind: int, peer: int, stream: int) -> None:
    communicator = _known(handle)
    if communicator.device != current_device():
        raise Status(
            INVALID_USAGE, f"a communicator of device {communicator.device} on device {current_device()}"
        )
    if not 0 <= peer < communicator.size:
        raise Status(INVALID_ARGUMENT, f"rank {peer} of {communicator.size}")
    memory = view(address, np.uint8, (count * _BYTES[kind],), who="NCCL")
    _group.transfers.append(Transfer(communicator, sends, memory, peer, stream))
    if not _group.depth:
        _carry_out()


def _carry_out() -> None:
    transfers, _group.transfers = _group.transfers, []
    for transfer in transfers:
        finish(transfer.stream)
    streams = {transfer.stream for transfer in transfers if captured(transfer.stream)}
    if not streams:
        _exchange(transfers)
    elif len({transfer.stream for transfer in transfers}) == 1:
        give(streams.pop(), lambda: _exchange(transfers) or 0)
    else:
        raise Status(INVALID_USAGE, "a group on several streams of which one is captured")


def _exchange(transfers: list[Transfer]) -> None:
    for transfer in transfers:
        if transfer.sends:
            _send(transfer)
    for transfer in transfers:
        if not transfer.sends:
            _receive(transfer)


def _send(transfer: Transfer) -> None:
    communicator, peer = transfer.communicator, transfer.peer
    file = communicator.file(communicator.rank, peer, communicator.sent[peer])
    communicator.sent[peer] += 1
    rough = file.with_name(f"{file.name}.part")
    rough.write_bytes(transfer.memory.tobytes())
    rough.rename(file)


def _receive(transfer: Transfer) -> None:
    communicator, peer = transfer.communicator, transfer.peer
    file = communicator.file(peer, communicator.rank, communicator.received[peer])
    communicator.received[peer] += 1
    until = time.monotonic() + _MOST_SECONDS
    while not file.exists():
        if communicator.aborted:
            raise Status(REMOTE_ERROR, f"rank {communicator.rank} waited for rank {peer} and was aborted")
        if time.monotonic() > until:
            raise Status(
                INTERNAL_ERROR, f"rank {communicator.rank} waited {_MOST_SECONDS:.0f} s for rank {peer}"
            )
        time.sleep(0.0005)
    told = file.read_bytes()
    file.unlink()
    if len(told) != transfer.memory.nbytes:
        raise Status(
            INVALID_USAGE,
            f"rank {peer} sent {len(told)} bytes, rank {communicator.rank} takes {transfer.memory.nbytes}",
        )
    transfer.memory[...] = np.frombuffer(told, np.uint8)


def forget() -> None:
    """Remove what nobody received, when the process ends."""
    for communicator in _communicators.values():
        for file in Path("/dev/shm").glob(f"fake-nccl-{communicator.name}-*-{communicator.rank}-*"):
            file.unlink(missing_ok=True)


def error_string(code: int) -> int:
    return _TEXT_ADDRESS


_TEXT = ctypes.create_string_buffer(b"refused by the stand-in; its reason is on stderr")
_TEXT_ADDRESS = ctypes.addressof(_TEXT)
ERROR_STRING = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(error_string)
