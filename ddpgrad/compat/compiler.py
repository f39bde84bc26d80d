"""`torch.compile` and `torch.compiler` as pass-throughs: models run as they are."""

from __future__ import annotations

from typing import Any

from .settings import say_once


def compile(model: Any = None, **options: Any) -> Any:
    """`model` itself, a module or function, with one warning per process. Without one, a decorator.

    options: PyTorch's (fullgraph, dynamic, backend, mode, options, disable), all without effect.
    """
    known = {"fullgraph", "dynamic", "backend", "mode", "options", "disable", "name", "recompile_limit"}
    if unknown := set(options) - known:
        raise TypeError(f"compile() got an unexpected keyword argument '{min(unknown)}'")
    if not options.get("disable"):
        say_once(
            "compile",
            "torch.compile has no effect in ddpgrad: the model runs as it is (torch.captured_step repeats a whole training step)",
        )
    return model if model is not None else lambda fn: fn


def disable(fn: Any = None, recursive: bool = True, **options: Any) -> Any:
    """`fn` itself; without one, a decorator."""
    return fn if fn is not None else lambda function: function


def allow_in_graph(fn: Any) -> Any:
    """`fn` itself."""
    return fn


assume_constant_result = allow_in_graph


def reset() -> None:
    """Nothing: there are no compiled graphs to forget."""


def is_compiling() -> bool:
    """False."""
    return False


def is_dynamo_compiling() -> bool:
    """False."""
    return False


def is_exporting() -> bool:
    """False."""
    return False


def cudagraph_mark_step_begin() -> None:
    """Nothing: steps are not recorded behind the program's back."""


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """No backends."""
    return []


__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "reset",
]  # fmt: skip
