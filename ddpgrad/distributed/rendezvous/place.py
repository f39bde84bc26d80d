"""Where ranks meet that no launcher of ours started: what a program, or its environment, says about it.

    env://                  MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, as torchrun and Kubeflow set them
    tcp://HOST:PORT         rank 0 listens there
    file://PATH             a file that all ranks reach
    store=                  a store that the program has made

Source of the names and of `?rank=R&world_size=N`: https://pytorch.org/docs/stable/distributed.html#initialization.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import parse_qs, unquote, urlsplit

from ...core import environment
from ...core.errors import TransportError
from ..store import DistStoreError, FileStore, HashStore, PrefixStore, Store
from ..tcp_store import TCPStore
from . import handlers

_AGAIN_S = 0.1
_LOOPBACK = ("localhost", "127.", "::1")


@dataclass(frozen=True)
class Asked:
    """The arguments of `init_process_group` that say where ranks meet; -1 and None: not given.

    timeout: seconds; None: DDPGRAD_TIMEOUT.
    """

    init_method: str | None = None
    rank: int = -1
    world_size: int = -1
    store: Store | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        for name, kind, what in (
            ("init_method", str | None, "text"),
            ("rank", int, "an integer"),
            ("world_size", int, "an integer"),
        ):
            if not isinstance(given := getattr(self, name), kind):
                raise TypeError(f"init_process_group: {name} must be {what}, got {given!r}")
        if self.store is not None and self.init_method is not None:
            raise ValueError("Cannot specify both init_method and store.")
        if self.store is not None and (self.rank < 0 or self.world_size < 1):
            raise ValueError("init_process_group: with a store, rank and world_size must be given too")

    @property
    def names_a_place(self) -> bool:
        """Whether this, or the environment, says where to meet."""
        given = self.init_method is not None or self.store is not None
        return given or "MASTER_ADDR" in environment.rendezvous()

    @property
    def seconds(self) -> float:
        if environment.debugger():
            return float("inf")
        return environment.timeout() if self.timeout is None else self.timeout


@dataclass(frozen=True)
class Place:
    """Rank `rank` of `world_size` meets the others at `text`; `tcp` is host and port, `path` a file, if it is one.

    agent: another process, torchrun's agent, listens at `tcp` and speaks PyTorch's own language.
    prefix: in front of all keys.
    """

    rank: int
    world_size: int
    text: str
    tcp: tuple[str, int] | None = None
    path: str | None = None
    store: Store | None = None
    agent: bool = False
    prefix: str = "ddpgrad"
    local_rank: int | None = None

    @property
    def served(self) -> bool:
        """Whether rank 0 itself keeps what is said here: it is gone when that process is."""
        return self.tcp is not None and not self.agent

    @property
    def near(self) -> bool:
        """Whether the address is this host's own loopback: then no port needs to be open to others."""
        return self.tcp is not None and self.tcp[0].startswith(_LOOPBACK)

    def open(self, until: float) -> Store:
        """The store in which the ranks find each other. until: monotonic seconds.

        Raises TransportError if nobody can be reached, and for rank 0 if it cannot listen.
        """
        return PrefixStore(self.prefix, self._open(until))

    def _open(self, until: float) -> Store:
        left = timedelta(seconds=min(max(until - time.monotonic(), _AGAIN_S), 1e8))
        if self.store is not None:
            return self.store
        if self.path is not None:
            store: Store = FileStore(self.path)  # which `remove` removes
        elif self.agent:
            from .agent_store import AgentStore

            assert self.tcp is not None
            store = AgentStore(*self.tcp, timeout=left)
        else:
            assert self.tcp is not None
            host, port = self.tcp
            store = (
                _serve(host, port, self.near, left) if self.rank == 0 else TCPStore(host, port, timeout=left)
            )
        store.set_timeout(left)
        return store

    def close(self) -> None:
        """Stop to listen, if this process does."""
        if self.rank == 0 and self.served:
            _stop_serving()

    def remove(self) -> None:
        """Remove the file, if it is one: all ranks have met."""
        if self.rank == 0 and self.path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)


class _Served:
    """The store of rank 0, which outlives the meeting: so a rank too many learns that it is not needed, and ranks may
    come for the next meeting before rank 0 does. A forked copy of the process serves nobody.
    """

    key: tuple[str, int, int] | None = None
    store: TCPStore | None = None


def _serve(host: str, port: int, near: bool, timeout: timedelta) -> TCPStore:
    key = (host, port, os.getpid())
    if _Served.store is not None and _Served.key == key:
        return _Served.store
    _stop_serving()
    both = not near and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or (near and ":" in host) else socket.AF_INET
    try:
        listening = socket.create_server(
            (host if near else "", port), family=family, backlog=1024, dualstack_ipv6=both
        )
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise TransportError(f"rank 0 cannot listen at {host}:{port}: {error.strerror}") from None
        # Maybe another process that believes to be rank 0: then both are told so in its store.
        return _taken(host, port, timeout)
    address = host if near else "127.0.0.1"
    _Served.key = key
    _Served.store = TCPStore(
        address, port, is_master=True, timeout=timeout, master_listen_fd=listening.detach()
    )
    return _Served.store


def _taken(host: str, port: int, timeout: timedelta) -> TCPStore:
    try:
        store = TCPStore(host, port, timeout=min(timeout, timedelta(seconds=5)))
        store.check([""])
    except (DistStoreError, ValueError) as error:
        raise TransportError(
            f"rank 0 cannot listen at {host}:{port}: another program does ({error}). Choose another MASTER_PORT."
        ) from None
    return store


def _stop_serving() -> None:
    if _Served.store is not None and _Served.key is not None and _Served.key[-1] == os.getpid():
        _Served.store.close()
    _Served.store = _Served.key = None


def place(asked: Asked, alone_too: bool = False) -> Place | None:
    """The place that is named; None if nothing is said: then this process is alone.

    alone_too: a world of one has a place, too.

    Raises ValueError, saying what is missing, for a place that is named in part.
    """
    if asked.store is not None:
        if asked.world_size > 1:
            _refuse_hash_store(asked.store)
        return _checked(Place(asked.rank, asked.world_size, "the given store", store=asked.store))
    if handlers.registered(asked.init_method):
        found = handlers.rendezvous(
            asked.init_method or "", asked.rank, asked.world_size, timeout=timedelta(seconds=asked.seconds)
        )
        store, rank, world_size = next(found)
        return place(Asked(None, rank, world_size, store, asked.timeout))
    url = urlsplit(asked.init_method or "env://")
    if url.scheme not in ("env", "tcp", "file"):
        raise ValueError(f"No rendezvous handler for {url.scheme}:// (init_method={asked.init_method!r})")
    query = parse_qs(url.query)
    rank = _agreed("rank", asked.rank, query)
    world_size = _agreed("world_size", asked.world_size, query)
    if url.scheme == "env":
        return _from_environment(asked, rank, world_size, alone_too)
    missing = [name for name, value in (("rank", rank), ("world size", world_size)) if value < 0]
    if missing:
        raise ValueError(
            f"Error initializing torch.distributed using {url.scheme}:// rendezvous: {missing[0]} parameter missing"
        )
    if url.scheme == "tcp":
        if url.port is None or url.hostname is None:
            raise ValueError(
                f"Error initializing torch.distributed using tcp:// rendezvous: port number missing in {asked.init_method!r}"
            )
        tcp = (url.hostname, url.port)
        return _checked(Place(rank, world_size, f"tcp://{url.hostname}:{url.port}", tcp))
    path = unquote(url.netloc + url.path)
    if not path:
        raise ValueError("Error initializing torch.distributed using file:// rendezvous: path missing")
    return _checked(Place(rank, world_size, f"file://{path}", path=path))


def _from_environment(asked: Asked, rank: int, world_size: int, alone_too: bool) -> Place | None:
    given = environment.rendezvous()
    told = {"RANK": str(rank)} if rank >= 0 else {}
    told |= {"WORLD_SIZE": str(world_size)} if world_size >= 0 else {}
    known = {**given, **told}
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if asked.init_method is None and not any(name in known for name in names):
        return None
    numbers = {name: _number(name, known[name]) for name in names if name in known and name != "MASTER_ADDR"}
    if numbers.get("WORLD_SIZE") == 1 and numbers.get("RANK", 0) == 0 and not alone_too:
        return _checked(Place(0, 1, "env://"))
    missing = [name for name in names if name not in known]
    if missing:
        there = ", ".join(f"{name}={known[name]}" for name in names if name in known) or "none of the others"
        raise ValueError(
            "Error initializing torch.distributed using env:// rendezvous: environment variable "
            f"{missing[0]} expected, but not set ({there}). Set {', '.join(missing)} as well, or start the ranks with "
            "`ddprun -n N script.py`, which needs none of them."
        )
    host, port = known["MASTER_ADDR"].strip("[]"), numbers["MASTER_PORT"]
    attempt = known.get("TORCHELASTIC_RESTART_COUNT", "0")
    return _checked(
        Place(
            numbers["RANK"],
            numbers["WORLD_SIZE"],
            f"MASTER_ADDR:MASTER_PORT {host}:{port}",
            (host, port),
            agent=known.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            prefix=f"ddpgrad/{attempt}",
            local_rank=_number("LOCAL_RANK", known["LOCAL_RANK"]) if "LOCAL_RANK" in known else None,
        )
    )


def _checked(place: Place) -> Place:
    if place.world_size < 1 or not 0 <= place.rank < place.world_size:
        raise ValueError(
            f"rank {place.rank} is no rank of a world of {place.world_size} ({place.text}): ranks are numbered "
            f"from 0 to WORLD_SIZE - 1; expected one from 0 to {max(place.world_size, 1) - 1}"
        )
    if place.tcp is not None and not 0 < place.tcp[1] < 1 << 16:
        raise ValueError(f"port must have value from 1 to 65535 but was {place.tcp[1]}")
    return place


def _agreed(name: str, argument: int, query: Mapping[str, list[str]]) -> int:
    """The number that an argument or the address gives; -1: none does."""
    if name not in query:
        return argument
    number = _number(name, query[name][-1])
    if argument not in (-1, number):
        raise ValueError(f"init_method says {name}={number}, and the argument {name}={argument}")
    return number


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be an integer, got {text!r}") from None


def _refuse_hash_store(store: Store) -> None:
    inner = store
    while isinstance(inner, PrefixStore):
        inner = inner.underlying_store
    if isinstance(inner, HashStore):
        raise ValueError(
            "init_process_group: a HashStore reaches the threads of one process only, and ranks are processes; use a "
            "TCPStore or FileStore. Several ranks in one process: `ddprun --debug`, or distributed.simulate."
        )
