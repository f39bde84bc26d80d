"""`rendezvous`: the store, rank and size that an address stands for, by whoever registered for its scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from ...core import environment
from ...core.rank_local import RankLocal
from ..store import FileStore, Store
from ..tcp_store import TCPStore

if TYPE_CHECKING:
    Handler = Callable[..., Iterator[tuple[Store, int, int]]]

_OWN = ("tcp", "file", "env")
_handlers: RankLocal[dict[str, Handler]] = RankLocal(dict)


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Let `handler(url, timeout=...)` make what `rendezvous` yields for addresses `scheme://...`."""
    if scheme in _OWN or scheme in _handlers.get():
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers.get()[scheme] = handler


def registered(url: str | None) -> bool:
    """Whether the program has registered a handler for addresses like `url`."""
    return url is not None and urlsplit(url).scheme in _handlers.get()


def rendezvous(
    url: str, rank: int = -1, world_size: int = -1, **options: Any
) -> Iterator[tuple[Store, int, int]]:
    """An iterator whose only item is (store, rank, world size), of `env://`, `tcp://HOST:PORT` or `file://PATH`.

    options: timeout, a timedelta; and whatever a handler of the program's own takes.

    Raises RuntimeError for an unknown scheme and for a second item, ValueError for a place that is named in part.
    """
    if not isinstance(url, str):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    if not isinstance(rank, int) or not isinstance(world_size, int):
        raise RuntimeError(f"`rank` and `world_size` must be integers, got {rank!r} and {world_size!r}")
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query))
    if (rank, world_size) != (-1, -1):
        if {"rank", "world_size"} & asked.keys():
            raise AssertionError(f"The url: {url} has node-specific arguments(rank, world_size) already.")
        more = [f"rank={rank}"] * (rank != -1) + [f"world_size={world_size}"] * (world_size != -1)
        url += ("&" if parts.query else "?") + "&".join(more)
    if parts.scheme not in (*_OWN, *_handlers.get()):
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    handler = _handlers.get().get(parts.scheme)
    return handler(url, **options) if handler is not None else _own(url, options.get("timeout"))


def _own(url: str, timeout: timedelta | None) -> Iterator[tuple[Store, int, int]]:
    from .place import Asked, place  # which asks here for schemes that it does not know

    where = place(Asked(url), alone_too=True)
    assert where is not None
    limit = timedelta(seconds=environment.timeout()) if timeout is None else timeout
    if where.path is not None:
        store: Store = FileStore(where.path, where.world_size)
        store.set_timeout(limit)
    else:
        assert where.tcp is not None
        if where.agent:
            from .agent_store import AgentStore

            store = AgentStore(*where.tcp, timeout=limit)
        else:
            libuv = dict(parse_qsl(urlsplit(url).query)).get("use_libuv", "1") == "1"
            store = TCPStore(
                *where.tcp, where.world_size, where.rank == 0, limit, multi_tenant=True, use_libuv=libuv
            )
    yield store, where.rank, where.world_size
    raise RuntimeError(f"Unable to perform rerendezvous using {urlsplit(url).scheme}:// method")
