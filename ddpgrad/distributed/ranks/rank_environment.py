"""The environment of each rank where several share a process: variables, threads, breakpoints, generators, modules.

Each rank finds RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE of its own in the environment,
threads that it starts act for it, `random` and `numpy.random` draw from generators of its own, and
modules that lie beside its program are imported for it alone. Everything else of the process (installed modules, the rest of the environment, the
working folder, files) is shared by its ranks, as it is by the threads of any program.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import numpy as np
from numpy.random import mtrand

from ...core import environment, rank_local
from ...core.errors import DistributedError
from .baton import Unwind
from .world import HostedRank

_lock = threading.Lock()
_users = 0
_undo: list[Any] = []
# What threads wait in for one another, in the end. Joining and conditions are all but the locks themselves.
_WAITS = (threading.Thread, "join"), (threading.Condition, "wait")
# Their threads call no collectives, or live until Python ends.
_OTHERS = ("ddpgrad.", "concurrent.futures.")
_WRITES = "ddpgrad.distributed.checkpoint."  # in a thread whose end depends on the other ranks


@contextmanager
def shared_process() -> Iterator[None]:
    """Within it, variables and new threads are those of the calling rank. May be entered several times."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            before = environment.replace(RankVariables(environment.mapping()))
            _undo[:] = [
                before,
                threading.Thread.start,
                _Generators(),
                *(getattr(kind, name) for kind, name in _WAITS),
            ]
            threading.Thread.start = _start_for_rank  # type: ignore[method-assign]
            for (kind, name), wait in zip(_WAITS, _undo[3:], strict=True):
                setattr(kind, name, _letting_others_run(wait))
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                before, threading.Thread.start, generators, *waits = _undo
                generators.remove()
                environment.replace(before)
                for (kind, name), wait in zip(_WAITS, waits, strict=True):
                    setattr(kind, name, wait)


class _Generators:
    """`random` and `numpy.random`, until `remove`: their functions are those of a generator of the calling rank's own.

    The first rank of the process has the generators of the process, and the seeds of the others follow from those. Modules
    ask for what they lack themselves by `__getattr__`, so ranks that take turns pay nothing for it.
    """

    def __init__(self) -> None:
        process: tuple[random.Random, np.random.RandomState] = random._inst, mtrand._rand
        next_draw = random.Random()
        next_draw.setstate(random.getstate())
        seed = next_draw.getrandbits(32)

        def own() -> tuple[random.Random, np.random.RandomState]:
            me: Any = rank_local.bound()
            if me is None or me.rank == me.launch.ranks.start:
                return process
            return random.Random(seed + me.rank), np.random.RandomState((seed + me.rank) % (1 << 32))

        generators = rank_local.RankLocal(own)
        self._taken: list[tuple[ModuleType, dict[str, Any]]] = []
        for module, place in ((random, 0), (np.random, 1), (mtrand, 1)):
            held = process[place]
            taken = {name: value for name, value in vars(module).items() if _belongs(value, held)}
            if module is np.random:
                taken |= {name: getattr(module, name) for name in _RAND}
            self._taken.append((module, taken))
            vars(module)["__getattr__"] = functools.partial(
                _of_rank, generators, module.__name__, place, taken
            )
            for name in taken:
                del vars(module)[name]

    def remove(self) -> None:
        for module, taken in self._taken:
            vars(module).update(taken)
            del vars(module)["__getattr__"]


# Functions of NumPy that look for the generator themselves, and what they call.
_RAND = {"seed": "seed", "ranf": "random_sample", "sample": "random_sample"}


def _belongs(value: Any, generator: Any) -> bool:
    return value is generator or getattr(value, "__self__", None) is generator


def _of_rank(
    generators: rank_local.RankLocal[Any], module: str, place: int, taken: dict[str, Any], name: str
) -> Any:
    """What the attribute `name` of `module` is to the calling rank."""
    if name not in taken:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    own = generators.get()[place]
    return own if name in ("_inst", "_rand") else getattr(own, _RAND.get(name, name) if place else name)


class RankVariables(MutableMapping[str, str]):
    """The process's environment, with the calling rank's own variables in front."""

    def __init__(self, process: MutableMapping[str, str]) -> None:
        self._process = process

    def _own(self) -> dict[str, str]:
        hosted = rank_local.bound()
        return hosted.variables if isinstance(hosted, HostedRank) else {}

    def __getitem__(self, name: str) -> str:
        own = self._own()
        return own[name] if name in own else self._process[name]

    def __setitem__(self, name: str, value: str) -> None:
        own = self._own()
        (own if name in own else self._process)[name] = value

    def __delitem__(self, name: str) -> None:
        own = self._own()
        del (own if name in own else self._process)[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._process, **self._own()})

    def __len__(self) -> int:
        return len({**self._process, **self._own()})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)

    def __repr__(self) -> str:
        return repr(self.copy())

    def __or__(self, other: Any) -> dict[str, str]:
        return self.copy() | dict(other)

    def __ror__(self, other: Any) -> dict[str, str]:
        return dict(other) | self.copy()

    def copy(self) -> dict[str, str]:
        return dict(self)


def _start_for_rank(thread: threading.Thread) -> None:
    """`Thread.start`: a thread that a rank starts acts for that rank, and fails for it when a collective fails."""
    key = rank_local.bound()
    if key is None:
        _undo[1](thread)
        return
    baton = key.world.baton if isinstance(key, HostedRank) else None
    local = key.rank - key.launch.ranks.start if isinstance(key, HostedRank) else 0
    run = thread.run

    def run_for_rank() -> None:
        rank_local.bind(key)
        try:
            run()
        except Unwind:
            return
        except DistributedError as error:
            if baton is None or not isinstance(key, HostedRank):
                raise
            key.fail(error)
        finally:
            if baton is not None:
                baton.helper_ended(local, thread)

    thread.run = run_for_rank
    if baton is not None and may_call_collectives(thread):
        baton.helpers[local].add(thread)
    # Python waits until the thread has begun, which is no wait for what the thread does.
    rank_local.bind(None)
    try:
        _undo[1](thread)
    except RuntimeError:
        if baton is not None:
            baton.helper_ended(local, thread)
        raise
    finally:
        rank_local.bind(key)


def may_call_collectives(thread: threading.Thread) -> bool:
    """Whether the program of a rank has a share in what `thread` does, and in when it ends."""
    module = getattr(getattr(thread, "_target", None), "__module__", None) or ""
    return module.startswith(_WRITES) or not module.startswith(_OTHERS)


def _letting_others_run(wait: Callable[..., Any]) -> Callable[..., Any]:
    """`wait`, during which helpers of the rank that waits can let other ranks run (see `baton.py`)."""

    @functools.wraps(wait)
    def waits(it: Any, timeout: float | None = None) -> Any:
        key = rank_local.bound()
        if (
            not isinstance(key, HostedRank)
            or key.world.baton is None
            or (timeout is not None and timeout <= 0)
        ):
            return wait(it, timeout)
        with key.world.baton.blocked(key.rank - key.launch.ranks.start):
            return wait(it, timeout)

    return waits


def _pass_by(*args: Any, **kwargs: Any) -> None:
    """Do nothing: `breakpoint()` in ranks other than the chosen one."""


class Breakpoints:
    """Lets breakpoint() stop one of the ranks only. ranks: those of this process; chosen: None for all."""

    def __init__(self, ranks: Sequence[int], chosen: int | None) -> None:
        self._before = sys.breakpointhook
        self._hooks = [self._before if chosen in (None, rank) else _pass_by for rank in ranks]

    def __enter__(self) -> Breakpoints:
        return self

    def __exit__(self, *error: object) -> None:
        sys.breakpointhook = self._before

    def enter(self, local: int) -> None:
        """Rank `local` of this process now holds the baton."""
        # A debugger shows the frame that called the hook: there is no room for a function between.
        sys.breakpointhook = self._hooks[local]

    def leave(self) -> None:
        """It waits for others."""


class RankEnvironment:
    """Switches `__main__`, the rank's own modules and breakpoints to the rank that holds the baton.

    ranks: those of this process. mains: the module `__main__` of each. folder: where modules are
    each rank's own.
    """

    def __init__(self, ranks: Sequence[int], mains: Sequence[ModuleType], folder: str) -> None:
        self._mains = mains
        self._breakpoints = Breakpoints(ranks, environment.only_rank())
        self._folder = os.path.join(os.path.abspath(folder), "")
        # What is there before the ranks run stays shared, with all that belongs to it.
        self._shared = {name.partition(".")[0] for name in sys.modules}
        self._names: set[str] = set()
        self._kept: list[dict[str, ModuleType]] = [{} for _ in mains]
        self._shown: int | None = None

    def __enter__(self) -> RankEnvironment:
        self._main = sys.modules["__main__"]
        place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(place, self)
        return self

    def __exit__(self, *error: object) -> None:
        sys.meta_path.remove(self)
        self._put_away()
        sys.modules["__main__"] = self._main
        self._breakpoints.__exit__()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find a module as Python does, and remember it if it is one of the ranks' own."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and name.partition(".")[0] not in self._shared and self._is_own(spec):
            self._names.add(name)
        return spec

    def _is_own(self, spec: ModuleSpec) -> bool:
        places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
        source = spec.origin is None or spec.origin.endswith(".py")  # compiled modules load once a process
        inside = any(os.path.abspath(place).startswith(self._folder) for place in places)
        return source and inside and not any("site-packages" in place for place in places)

    def enter(self, local: int) -> None:
        """Rank `local` of this process now holds the baton: switch to its modules."""
        if local == self._shown:
            return
        self._put_away()
        self._shown = local
        # Type hints and pickles look names up in sys.modules["__main__"].
        sys.modules["__main__"] = self._mains[local]
        sys.modules.update(self._kept[local])
        self._breakpoints.enter(local)

    def leave(self) -> None:
        """The rank that is shown waits for others: raise if they could not go on."""
        for name in self._names:
            module = sys.modules.get(name)
            if module is not None and getattr(module.__spec__, "_initializing", False):
                raise DistributedError(
                    f"a collective is called while module {name!r} is imported; ranks that share a process would "
                    "wait for its import lock for ever. Call it from a function instead, or start one process a rank."
                )

    def _put_away(self) -> None:
        if self._shown is not None:
            here = {name: sys.modules.pop(name) for name in self._names if name in sys.modules}
            self._kept[self._shown] = here
