"""Run the ranks that this process hosts, and end them together when one fails.

An ordinary process hosts one rank: the program itself. With fewer processes than
ranks (`ddprun --procs`), and in `simulate`, each rank is a thread; see `baton`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType
from typing import TypeVar

from ...core import rank_local
from ...core.environment import Launch
from ...core.errors import LaunchError
from ..failure.cause import exit_status, line_of
from .baton import Baton, PerRank, Unwind
from .rank_environment import Breakpoints, RankEnvironment, may_call_collectives, shared_process
from .world import HostedRank, World, current, serve

__all__ = ["HostedRank", "current", "run_module", "run_ranks", "run_script", "simulate"]

T = TypeVar("T")

# Deep graphs and deep recursion need more than the usual 8 MiB; only what is touched is used.
_STACK_BYTES = 128 << 20
# How long ranks may take to end after an interrupt, or wait for their threads after a failure, before the process
# goes on without them.
_GRACE_S = 2.0


def run_ranks(fn: Callable[[int], T], launch: Launch) -> list[T]:
    """Run `fn(rank)` for every rank that `launch` gives this process; the results by rank.

    One rank runs in the calling thread; several run as threads that pass the baton. When a
    rank raises, the others of this process end at their next collective, other processes are
    told, and the exception of the rank that failed first is raised here, with its traceback.
    """
    world = World(launch)
    if len(world.hosted) == 1:
        return [_run_alone(fn, world)]
    return _run_threads(fn, world)


def simulate(fn: Callable[[], T], world_size: int, only_rank: int | None = None) -> list[T]:
    """Run `fn` as `world_size` ranks of this process; the results by rank.

    Each rank finds itself: `init_process_group()` works inside `fn`, RANK, LOCAL_RANK and
    WORLD_SIZE in its environment are its own, threads that it starts act for it, and what is
    global in ddpgrad is its own. Variables outside `fn` are shared by the ranks, which run in
    turn: another rank goes on only when this one waits in a collective. only_rank: the one rank in
    which breakpoint() stops; None: all.
    """
    if only_rank is not None and not 0 <= only_rank < world_size:
        raise ValueError(f"simulate: only_rank must be a rank from 0 to {world_size - 1}, got {only_rank}")
    if world_size < 1:
        raise ValueError(f"simulate: world_size must be at least 1, got {world_size}")
    with Breakpoints(range(world_size), only_rank) as per_rank:
        return _run_threads(lambda rank: fn(), World(Launch(world_size=world_size)), per_rank)


def _run_alone(fn: Callable[[int], T], world: World) -> T:
    before = serve(world)
    rank = world.launch.ranks.start
    try:
        result = fn(rank)
    except BaseException as error:
        world.fail(rank, error)
        served = serve(before)
        if served is not None and served is not world:  # the program met others than `launch` says
            served.fail(served.launch.ranks.start, error)
        raise
    finally:
        serve(before)
    world.close()
    return result


def _run_threads(fn: Callable[[int], T], world: World, per_rank: PerRank | None = None) -> list[T]:
    with shared_process():
        return _run_sharing(fn, world, per_rank)


def _run_sharing(fn: Callable[[int], T], world: World, per_rank: PerRank | None) -> list[T]:
    for hosted in world.hosted:
        hosted.locate()
    baton = world.baton = Baton(world.launch.ranks, per_rank)
    results: dict[int, T] = {}

    def run(local: int, hosted: HostedRank) -> None:
        rank_local.bind(hosted)
        # Python need not wait for this thread at its end; threads that the program starts are no daemons either.
        threading.current_thread()._daemonic = False  # pyright: ignore[reportAttributeAccessIssue]
        try:
            baton.receive(local)
            results[local] = fn(hosted.rank)
        except Unwind:
            pass
        except BaseException as error:
            hosted.fail(error)
        finally:
            rank_local.release(hosted)
            baton.retire(local)

    threads = _start_threads(run, world)
    baton.start()
    try:
        _join(threads, baton, world)
    except KeyboardInterrupt as interrupt:
        _interrupt(baton, threads)
        world.fail(world.launch.ranks[baton.holder or 0], interrupt)
        raise
    for hosted in world.hosted:
        if (late := hosted.last_checks.error) is not None and not baton.failures:
            hosted.fail(late)
    if baton.failures:
        rank, error = baton.failures[0]
        error.add_note(f"(raised by rank {rank})")
        world.free_threads()
        raise error
    world.close()
    return [results[local] for local in range(len(threads))]


def _start_threads(run: Callable[[int, HostedRank], None], world: World) -> list[threading.Thread]:
    before = threading.stack_size(_STACK_BYTES)
    try:
        threads = [
            threading.Thread(target=run, args=(local, hosted), name=f"rank {hosted.rank}", daemon=True)
            for local, hosted in enumerate(world.hosted)
        ]
        for thread in threads:
            thread.start()
    finally:
        threading.stack_size(before)
    return threads


def _join(threads: list[threading.Thread], baton: Baton, world: World) -> None:
    """Return when `threads`, those of the ranks, have ended, or after a failure wait for what may not end."""
    from .late import late  # here, as it is for several ranks in a process

    until, stalled = float("inf"), None
    for thread in threads:
        # An interrupt need not wake a join, but is seen between two of them.
        while thread.is_alive():
            thread.join(0.2)
            if not baton.stopping and (stalled := late(baton)) is not None:
                world.hosted[stalled[0]].fail(stalled[1])
            if not (baton.stopping and (stalled or baton.any_blocked())):
                until = float("inf")
            elif time.monotonic() > (until := min(until, time.monotonic() + _GRACE_S)):
                return


def _join_helpers(rank: int) -> None:
    """Return when the threads that the program of `rank` has started, and not made daemons, have ended."""
    hosted = current()
    baton = hosted.world.baton
    if baton is not None:
        threads = [*baton.helpers[rank - hosted.launch.ranks.start]]
    else:
        threads = [t for t in threading.enumerate() if may_call_collectives(t)]
    for thread in threads:
        if not thread.daemon and thread not in (threading.current_thread(), threading.main_thread()):
            thread.join()


def _interrupt(baton: Baton, threads: list[threading.Thread]) -> None:
    """Ctrl-C reaches the main thread only: pass it to the rank that runs, and end the others."""
    baton.stopping = True
    running = threads[baton.holder or 0].ident
    if running is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(running), ctypes.py_object(KeyboardInterrupt)
        )
    for thread in threads:
        thread.join(_GRACE_S / len(threads))


def run_script(path: str, argv: Sequence[str], launch: Launch) -> str:
    """Run the program file `path` as `__main__`, once for every rank that `launch` gives this process.

    `argv` are the program's arguments without its name. `sys.argv`, and `sys.path[0]` (the
    program's folder), are set as Python sets them. Several ranks have globals of their own
    and share the rest of the process. An exit with code 0 is a clean end of that rank; any
    other exit or exception ends all ranks and is raised here, as by `run_ranks`. Returns 'file:line'
    of the exit with code 0 by which the only rank of this process ended; else ''.
    """
    if not os.path.isfile(path):
        raise LaunchError(f"there is no program file {path!r} (working folder: {os.getcwd()})")
    sys.argv = [path, *argv]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    if len(launch.ranks) == 1:
        return _run_program(lambda rank: runpy.run_path(path, run_name="__main__"), launch)
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    modules = [_main_module(code, path) for _ in launch.ranks]
    return _run_program(lambda rank: exec(code, modules[rank - launch.ranks.start].__dict__), launch, modules)


def run_module(name: str, argv: Sequence[str], launch: Launch) -> str:
    """Like `run_script`, for a module or package that is found on `sys.path` (`python -m name`)."""
    sys.path.insert(0, os.getcwd())
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
    code = get_code(spec.name) if spec is not None and get_code is not None else None
    if spec is None or code is None:
        raise LaunchError(
            f"there is no module {name!r} that can be run (searched sys.path and {os.getcwd()})"
        )
    sys.argv = [spec.origin or name, *argv]
    if len(launch.ranks) == 1:
        return _run_program(lambda rank: runpy.run_module(name, run_name="__main__", alter_sys=True), launch)
    modules = [_main_module(code, sys.argv[0]) for _ in launch.ranks]
    for module in modules:
        module.__spec__ = spec
        module.__package__ = spec.parent
    return _run_program(lambda rank: exec(code, modules[rank - launch.ranks.start].__dict__), launch, modules)


def _main_module(code: CodeType, path: str) -> ModuleType:
    module = ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__, __cached__=None)
    return module


def _run_program(
    program: Callable[[int], object], launch: Launch, modules: Sequence[ModuleType] | None = None
) -> str:
    def run(rank: int) -> str:
        try:
            program(rank)
            ended_at = ""
        except SystemExit as end:
            if exit_status(end):
                raise
            ended_at = line_of(end)
        _join_helpers(rank)  # as Python does at its end
        current().last_checks.raise_error()
        return ended_at

    world = World(launch)
    try:
        if launch.mpi and launch.procs < launch.world_size:
            world.ranks_on_this_host()  # all processes find out together, before a rank of some asks for it
        if modules is None:
            return _run_alone(run, world)
        with RankEnvironment(launch.ranks, modules, sys.path[0]) as per_rank:
            _run_threads(run, world, per_rank)
        return ""
    except BaseException:
        # Whoever catches this and exits must not leave ranks of other hosts waiting in MPI.
        world.abort_at_exit = True
        raise
