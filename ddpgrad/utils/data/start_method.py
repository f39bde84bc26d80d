"""How a loader's workers are started: by a fork server, or by a fork of the program.

By default a fork server starts them. A fork of the program itself copies a process in which MPI, CUDA or other threads
may be at work, and their locks and connections do not survive that; the fork server is a fresh process without any of
them. It has imported ddpgrad, so that a worker starts in the time that the program's own imports take.

But a worker of a fork server imports the program, which would run again where its statements do not stand under
`if __name__ == "__main__":`. Workers of such a program, and of one that is no file, are forked, as PyTorch's all are;
and so are those that are given what cannot be sent, such as a lambda.
"""

from __future__ import annotations

import ast
import multiprocessing
import os
import sys
import tempfile
import threading
from typing import Any

from ... import cuda

_SOCKET_NAME = 108  # bytes of a Unix socket's name with the zero at its end
HARMLESS = "holds_no_lock"
"""An attribute of threads that a fork of the process does not harm."""


def start_context(chosen: Any, num_workers: int) -> Any:
    """The multiprocessing context for `DataLoader(multiprocessing_context=…)`, a name, a context or None.

    RuntimeError where the workers cannot be started so, with what to do instead.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(
            "a DataLoader with workers is iterated over while a worker imports this program: what the program "
            "does must stand under `if __name__ == '__main__':`, or in a function called there. Otherwise every "
            "worker would run it again"
        )
    context = _default(num_workers) if chosen is None else chosen
    if isinstance(context, str):
        context = multiprocessing.get_context(context)
    method = context.get_start_method()
    if method == "fork" and (reason := why_not_fork()):
        raise RuntimeError(
            f"DataLoader(multiprocessing_context='fork'): {reason}, and a forked copy of this process could "
            "hang or corrupt it. Use 'forkserver' (the default) or 'spawn'"
        )
    if method == "forkserver":
        context.set_forkserver_preload([f"{__package__}.forkserver"])
    return context


def _default(num_workers: int) -> str:
    runs_again = _runs_when_imported()
    if runs_again is not False and "fork" in multiprocessing.get_all_start_methods():
        reason = why_not_fork()
        if reason is None:
            return "fork"
        if runs_again:
            raise RuntimeError(
                f"DataLoader(num_workers={num_workers}): {reason}, so that this process cannot be forked, and a "
                f"worker that imports {_program()} would run all of it again. Put what the program does under "
                "`if __name__ == '__main__':`, or use num_workers=0"
            )
    return _fresh()


def _fresh() -> str:
    """The fork server, or spawn where there is none, or where TMPDIR leaves its socket no name that Linux takes."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return "spawn"
    socket_name = os.path.join(tempfile.gettempdir(), "pymp-12345678", "listener-12345678")
    return "forkserver" if len(os.fsencode(socket_name)) < _SOCKET_NAME else "spawn"


def why_not_fork() -> str | None:
    """What in this process a forked copy would not survive; None if nothing."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized():
        return "MPI is initialised"
    if "cupy" in sys.modules and cuda.is_initialized():
        return "CUDA is in use"
    running = [
        thread.name
        for thread in threading.enumerate()
        # tqdm's thread, which every program with a progress bar has, wakes up every ten seconds to look at a clock.
        if not hasattr(thread, HARMLESS) and type(thread).__module__ != "tqdm._monitor"
    ]
    if len(running) > 1:
        return f"{len(running)} threads are running ({', '.join(running)})"
    return None


def _program() -> str | None:
    """The file of the program; None in a notebook or at a prompt."""
    return getattr(sys.modules["__main__"], "__file__", None)


def _runs_when_imported() -> bool | None:
    """Whether the program does its work when a worker imports it; None where there is no file to import."""
    program, spec = _program(), getattr(sys.modules["__main__"], "__spec__", None)
    if program is None:
        return None
    if (
        spec is not None and spec.name.rpartition(".")[2] == "__main__"
    ):  # `python -m package`, which is not imported
        return False
    try:
        with open(program, "rb") as file:
            statements = ast.parse(file.read()).body
    except (OSError, SyntaxError, ValueError):  # such as a program that is compiled, or made by another one
        return None
    return not any(isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in statements)
