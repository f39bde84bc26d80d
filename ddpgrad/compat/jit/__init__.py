"""`torch.jit` as a pass-through: models run as Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from ...nn.modules.module import Module
from .. import absent
from ..settings import say_once

T = TypeVar("T")


class ScriptModule(Module):
    """A base class like Module. Nothing else is one: what `script` returns for a module is the module."""


class ScriptFunction:
    """For questions and annotations: nothing is one, since `script` returns the function itself."""


class Attribute(NamedTuple):
    """A value with the type that a compiler should take it for."""

    value: Any
    type: Any


class Error(RuntimeError):
    """What compiled code raises; nothing is compiled here."""


class TracerWarning(Warning):
    """What a tracer says of code that it cannot follow; nothing is traced here."""


_get_trace_graph = absent.stand_ins("jit", absent.TRACES)["_get_trace_graph"]


def script(obj: T, *args: Any, **kwargs: Any) -> T:
    """`obj` itself, with one warning per process."""
    say_once("jit.script", "torch.jit.script has no effect in ddpgrad: what it is given runs as it is")
    return obj


def trace(func: T, example_inputs: Any = None, *args: Any, **kwargs: Any) -> T:
    """`func` itself, with one warning per process; unlike PyTorch's it keeps its Python branches."""
    say_once("jit.trace", "torch.jit.trace has no effect in ddpgrad: what it is given runs as it is")
    return func


trace_module = trace


def freeze(mod: Module, *args: Any, **kwargs: Any) -> Module:
    """The module itself, which must be in evaluation mode."""
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before freezing."
        )
    return mod


def optimize_for_inference(mod: Module, *args: Any, **kwargs: Any) -> Module:
    """The module itself."""
    return mod


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A decorator, with or without arguments, that returns the function."""
    return drop if callable(drop) else lambda fn: fn


def export(fn: T) -> T:
    """The function itself."""
    return fn


unused = script_method = interface = export


def script_if_tracing(fn: T) -> T:
    """The function itself: nothing is ever traced."""
    return fn


_script_if_tracing = script_if_tracing
_copy_to_script_wrapper = _overload = _overload_method = export  # signatures of one function, for a compiler


def is_scripting() -> bool:
    """False."""
    return False


def is_tracing() -> bool:
    """False."""
    return False


def annotate(the_type: Any, the_value: T) -> T:
    """The value."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Python's own `isinstance`; of a generic type, only its origin is looked at."""
    from builtins import isinstance as builtin

    return builtin(obj, getattr(target_type, "__origin__", None) or target_type)


def fork(func: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Calls `func` at once; `wait` returns what it returned."""
    return func(*args, **kwargs)


def wait(future: T) -> T:
    """What `fork` returned."""
    return future


def save(m: Any, f: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Refused: there is no program to write."""
    raise NotImplementedError(
        "torch.jit.save: ddpgrad writes no TorchScript. Save `m.state_dict()` with ddpgrad.save, or export the model with "
        "ddpgrad.onnx.export"
    )


def load(f: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Refused: a TorchScript file holds a program."""
    raise NotImplementedError(
        "torch.jit.load: ddpgrad reads no TorchScript. With PyTorch, save the state_dict of the loaded model, and load "
        "that into a model built from ddpgrad.nn"
    )


__all__ = [
    "Attribute", "Final", "ScriptFunction", "ScriptModule", "annotate", "export", "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing",
    "isinstance", "load", "optimize_for_inference", "save", "script", "script_if_tracing", "script_method", "trace",
    "trace_module", "unused", "wait",
]  # fmt: skip
