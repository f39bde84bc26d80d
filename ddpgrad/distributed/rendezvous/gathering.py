"""How ranks find each other in a store: rank 0 calls the roll, and tells all who is there.

Each rank appends an entry to a list, one for so many ranks. Rank 0 draws a random number, the call, and publishes it;
ranks that see it answer. So an entry that an earlier job left behind counts for nothing, and two living processes with one
number are told apart from a process and its successor. When all have answered rank 0 publishes that, and for each host who
is there: a rank reads of its own host only, else what all read would grow with the square of their number.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ...core.errors import DistributedError, LaunchError, TransportError
from ..store import DistStoreError, Store
from ..transports.process_monitor import pid_namespace
from ..transports.shm import segments
from .place import Place

_ENTRIES, _ANSWERS, _STATE, _EVERYONE = "entries", "answers", "state", "everyone"
_LISTED = 64
"""Ranks that share a list of entries, and one of answers."""
# How long rank 0 waits for a second process with a number that was entered twice.
_DOUBLE_S = 1.0
_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.05
_PER_RANK_S = 0.0005

_process = (0, "")


@dataclass(frozen=True)
class Entry:
    """One process that wants to be a rank.

    nonce: of this attempt; process: of the process, whatever it attempts; memory: what it shares with others of its
    host (`segments.identity`); namespace: where `pid` is its number.
    """

    rank: int
    world_size: int
    nonce: str
    process: str
    memory: str
    host: str
    pid: int
    namespace: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True)
class Roster:
    """The ranks of a new world, as one of them needs to know them, and a random word that only they know.

    who: the same where the same processes meet again; hosts: how many there are; here: the ranks of this one's host,
    which reach the same shared memory; everyone: all ranks, by rank, where this is rank 0, else nothing.
    """

    token: str
    who: str
    hosts: int
    here: tuple[Entry, ...]
    everyone: tuple[Entry, ...] = ()


def gather(place: Place, until: float) -> tuple[Roster, Store]:
    """Meet the other ranks at `place`, whose store is returned, too. until: monotonic seconds.

    Raises TransportError if some do not come.

    Raises LaunchError if ranks contradict each other: two have one number, or they differ in WORLD_SIZE.
    """
    began = time.monotonic()
    while True:
        mine = _entry(place)
        try:
            store = place.open(until)
            if place.rank == 0:
                return _Chair(place, store, mine, began, until).run(), store
            return _attend(place, store, mine, began, until), store
        except DistStoreError as error:
            # Whoever listened may have been rank 0 of an earlier job, on its way out.
            if time.monotonic() + _LONGEST_PAUSE_S >= until:
                raise TransportError(
                    f"rank {place.rank} of {place.world_size} could not reach {place.text} for "
                    f"{time.monotonic() - began:.0f} s: {error}. Rank 0 has not come, ended early, or is another host than that."
                ) from None
            time.sleep(_LONGEST_PAUSE_S)


def _entry(place: Place) -> Entry:
    global _process
    if _process[0] != os.getpid():
        _process = (os.getpid(), secrets.token_hex(8))
    return Entry(
        place.rank, place.world_size, secrets.token_hex(8), _process[1], segments.identity(),
        socket.gethostname(), os.getpid(), pid_namespace(),
    )  # fmt: skip


def _attend(place: Place, store: Store, mine: Entry, began: float, until: float) -> Roster:
    """As another rank than 0: answer the call, until this process is on the list."""
    store.append(_list_of(_ENTRIES, mine.rank), json.dumps(asdict(mine)) + "\n")
    answered = ""
    for _ in _pauses(place, until):
        state = _state(store)
        if state.get("call", "") not in ("", answered) and not state.get("met"):
            answered = state["call"]
            store.append(_list_of(_ANSWERS, mine.rank), f"{mine.nonce} {answered}\n")
        if mine.nonce in state.get("refused", ()):
            store.add(_read_key(state), 1)
            raise LaunchError(state["why"])
        if state.get("met"):
            here = _listed(store, _host_key(state["met"]["token"], mine.memory))
            if mine in here:
                if place.served:
                    store.add(_read_key(state), 1)
                return Roster(**state["met"], here=tuple(here))
            if place.served:
                _refuse_latecomer(place, mine, _listed(store, _EVERYONE))
    with contextlib.suppress(DistStoreError):
        # It is too late for this rank to be on the list.
        store.append(_list_of(_ANSWERS, mine.rank), f"{mine.nonce} -\n")
    there = {entry.rank for entry in _entries(store, place)} | {mine.rank} | ({0} if answered else set())
    raise _not_met(place, sorted({*range(place.world_size)} - there) or [0], began)


class _Chair:
    """Rank 0, who calls the roll."""

    def __init__(self, place: Place, store: Store, mine: Entry, began: float, until: float) -> None:
        self._place, self._store, self._mine = place, store, mine
        self._began, self._until = began, until
        self._call = secrets.token_hex(8)

    def run(self) -> Roster:
        """Call until all ranks have answered."""
        if self._place.served:
            self._await_the_end_before()
        self._publish()
        full_since = 0.0
        for _ in _pauses(self._place, self._until):
            state = _state(self._store)
            if state.get("call") != self._call:
                other = state.get("chair", "another process")
                self._refuse([], f"two processes have RANK 0: {other} and {self._mine}. Give each its own")
            entries = [entry for entry in _entries(self._store, self._place) if entry.rank != 0]
            answered = self._answered()
            present = [self._mine, *(entry for entry in entries if entry.nonce in answered)]
            self._check(present)
            if {entry.rank for entry in present} < {*range(self._place.world_size)}:
                continue
            full_since = full_since or time.monotonic()
            # An entry without an answer is old, or of a process that has not yet seen the call.
            silent = len(present) < len({entry.nonce for entry in entries})
            if silent and time.monotonic() < full_since + _DOUBLE_S:
                continue
            everyone = sorted(present, key=lambda entry: entry.rank)
            met = self._tell(everyone)
            if self._place.served:
                self._await_readers(len(everyone) - 1)
            here = tuple(entry for entry in everyone if entry.memory == self._mine.memory)
            return Roster(**met, here=here, everyone=tuple(everyone))
        answered = self._answered()
        missing = sorted(
            {*range(self._place.world_size)}
            - {entry.rank for entry in _entries(self._store, self._place) if entry.nonce in answered}
        )
        raise _not_met(self._place, [rank for rank in missing if rank != 0], self._began)

    def _await_the_end_before(self) -> None:
        """Wait until the process that serves has left the world that met here before: its end clears what is said here.

        Raises LaunchError for a world that this process was no rank of: it is not going to end for this one.
        """
        before: dict[str, Any] = {}
        for _ in _pauses(self._place, self._until):
            before = _state(self._store)
            others = _listed(self._store, _EVERYONE) if before.get("met") else []
            if not others or others[0].process == self._mine.process:
                return
            _refuse_latecomer(self._place, self._mine, others)
        raise TransportError(
            f"rank 0 of {self._place.world_size} waited {time.monotonic() - self._began:.0f} s at {self._place.text} for "
            f"{before['chair']}, which was rank 0 there, to leave the world before. Let all ranks call "
            "destroy_process_group before any of them meets the others anew."
        )

    def _tell(self, everyone: list[Entry]) -> dict[str, Any]:
        """Publish who is there: for each host its own ranks, and all of them for who comes too late."""
        hosts = hosts_of(everyone)
        who = hashlib.sha256(" ".join(entry.process for entry in everyone).encode()).hexdigest()
        met = {"token": secrets.token_hex(8), "who": who, "hosts": len(hosts)}
        for memory, entries in hosts.items():
            self._store.set(_host_key(met["token"], memory), _lines(entries))
        if self._place.served:
            self._store.set(_EVERYONE, _lines(everyone))
        self._publish(met=met)
        return met

    def _publish(self, **more: Any) -> None:
        self._store.set(_STATE, json.dumps({"call": self._call, "chair": str(self._mine), **more}))

    def _answered(self) -> set[str]:
        """The nonces of those that have answered this call last."""
        lines = [line for key in _lists(_ANSWERS, self._place) for line in _read(self._store, key)]
        return {nonce for nonce, call in dict(map(str.split, lines)).items() if call == self._call}

    def _check(self, present: list[Entry]) -> None:
        """Raise LaunchError, here and in all that are present, if they contradict each other."""
        by_rank: dict[int, Entry] = {}
        for entry in present:
            if entry.world_size != self._place.world_size:
                self._refuse(
                    present,
                    f"rank {entry.rank} ({entry}) has WORLD_SIZE {entry.world_size}, and rank 0 ({self._mine}) has "
                    f"{self._place.world_size}: all ranks must be given the same",
                )
            other = by_rank.setdefault(entry.rank, entry)
            if other != entry:
                self._refuse(
                    present, f"two processes have RANK {entry.rank}: {other} and {entry}. Give each its own"
                )

    def _refuse(self, present: list[Entry], why: str) -> None:
        why = f"{self._place.text}: {why}."
        nonces = [entry.nonce for entry in present if entry != self._mine]
        self._publish(refused=nonces, why=why)
        self._await_readers(len(nonces))
        raise LaunchError(why)

    def _await_readers(self, count: int) -> None:
        """What this process serves is gone when it ends: first the others must have read it."""
        for _ in _pauses(self._place, time.monotonic() + _DOUBLE_S):
            if count and self._store.add(_read_key({"call": self._call}), 0) >= count:
                return


def clean(place: Place, store: Store, roster: Roster) -> None:
    """Rank 0: all ranks have read who is there; leave only what tells late processes that they are not needed."""
    for key in (*_lists(_ENTRIES, place), *_lists(_ANSWERS, place)):
        store.delete_key(key)
    for memory in hosts_of(roster.everyone):
        store.delete_key(_host_key(roster.token, memory))
    if not place.served:
        store.delete_key(_STATE)


def forget(store: Store) -> None:
    """Rank 0: the world is left; whoever comes now waits for the next one."""
    store.set(_STATE, "{}")


def _refuse_latecomer(place: Place, mine: Entry, others: list[Entry]) -> None:
    """Raise LaunchError if `mine` can never be among `others`, the job that runs there, nor is a rank that left it."""
    if not others or any(mine.process == entry.process for entry in others):
        return
    there = f"the job at {place.text} has {len(others)} ranks, all of which are there"
    if len(others) != mine.world_size:
        raise LaunchError(
            f"{there}; rank {mine.rank} ({mine}) has WORLD_SIZE {mine.world_size}: all ranks must be given the same."
        )
    raise LaunchError(
        f"{there}: two processes have RANK {mine.rank}: {others[mine.rank]} and {mine}. Give each its own, or "
        "give another job another MASTER_PORT."
    )


def _not_met(place: Place, missing: list[int], began: float) -> DistributedError:
    who = ", ".join(map(str, missing[:20])) + (", ..." if len(missing) > 20 else "")
    return TransportError(
        f"rank {place.rank} of {place.world_size} waited {time.monotonic() - began:.0f} s at {place.text} for "
        f"rank{'s' * (len(missing) != 1)} {who}, which did not come. Each rank must be started with the same address "
        "and WORLD_SIZE, and a RANK of its own; `timeout` of init_process_group says how long to wait."
    )


def _pauses(place: Place, until: float) -> Iterator[None]:
    """Comes at growing intervals until the time is up."""
    pause, longest = _PAUSE_S, max(_LONGEST_PAUSE_S, place.world_size * _PER_RANK_S)
    yield
    while time.monotonic() < until:
        time.sleep(pause)
        pause = min(1.5 * pause, longest)
        yield


def _state(store: Store) -> dict[str, Any]:
    return json.loads(store.look(_STATE) or "{}")


def _entries(store: Store, place: Place) -> list[Entry]:
    """All entries that ranks have made, of this job or another."""
    return [entry for key in _lists(_ENTRIES, place) for entry in _listed(store, key)]


def _listed(store: Store, key: str) -> list[Entry]:
    return [Entry(**json.loads(line)) for line in _read(store, key)]


def _read(store: Store, key: str) -> list[str]:
    return (store.look(key) or b"").decode().splitlines()


def _lines(entries: Iterable[Entry]) -> str:
    return "".join(json.dumps(asdict(entry)) + "\n" for entry in entries)


def _list_of(what: str, rank: int) -> str:
    return f"{what}/{rank // _LISTED}"


def _lists(what: str, place: Place) -> list[str]:
    return [_list_of(what, first) for first in range(0, place.world_size, _LISTED)]


def _read_key(state: dict[str, Any]) -> str:
    """How many have read what rank 0 has published last."""
    return f"read/{state['call']}"


def _host_key(token: str, memory: str) -> str:
    return f"host/{token}/{memory}"


def hosts_of(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The ranks of each host, by what they share."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.memory, []).append(entry)
    return found
