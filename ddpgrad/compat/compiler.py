"""`torch.compile` and `torch.compiler`: arguments, errors and the names of what is compiled are PyTorch's, and programs run as they are.

What may be left out of a forward depends on all that its Python reads, which would have to be asked before each call;
`captured_step` is told by the program instead.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..nn.modules.module import Module
from .compile_options import BACKENDS, FOR_DEBUGGING, check


class OptimizedModule(Module):
    """What `torch.compile` makes of a module: it runs the module, which is its `_orig_mod`, as it is."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._orig_mod = mod

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._orig_mod(*args, **kwargs)

    @property
    def training(self) -> bool:
        return self._orig_mod.training

    @training.setter
    def training(self, mode: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        if "_orig_mod" in self.__dict__:
            self._orig_mod.training = mode

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod" or "_orig_mod" not in self.__dict__:
            return super().__getattr__(name)
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN or "_orig_mod" not in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __len__(self) -> int:
        if not hasattr(self._orig_mod, "__len__"):
            raise TypeError(f"{type(self._orig_mod).__name__} does not support len()")
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return True

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})


_OWN = {"_orig_mod", "training", "_hooks", "_state_hooks"}
# Its members are ordinary attributes: what asks `__getattr__` for them is for classes whose own does something about them.
del OptimizedModule.__getattribute__


def compile(model: Any = None, **options: Any) -> Any:
    """A module, within an `OptimizedModule`, or a function that call `model` as it is, with one warning per process.

    options: PyTorch's (fullgraph, dynamic, backend, mode, options, name, disable …), checked and without effect. Without a
    model, a decorator.
    """
    if model is None:
        return lambda model: compile(model, **options)
    check(**options)
    if not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    if options.get("disable"):
        return model
    if isinstance(model, Module):
        return OptimizedModule(model)

    @functools.wraps(model)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    compiled.__dict__["_torchdynamo_orig_callable"] = model
    return compiled


def disable(fn: Any = None, recursive: bool = True, **options: Any) -> Any:
    """`fn` itself; without one, a decorator."""
    return fn if fn is not None else lambda function: function


def allow_in_graph(fn: Any) -> Any:
    """`fn` itself."""
    return fn


assume_constant_result = nested_compile_region = wrap_numpy = allow_in_graph


class set_stance(contextlib.ContextDecorator):
    """A function, block or decorator that says what is compiled: nothing is."""

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        known = (
            "default",
            "eager_then_compile",
            "aot_eager_then_compile",
            "force_eager",
            "eager_on_recompile",
            "fail_on_recompile",
        )
        if stance not in known:
            raise RuntimeError(f"invalid torch.compile stance {stance!r}: expected one of {', '.join(known)}")

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


def reset() -> None:
    """Nothing: there are no compiled graphs to forget."""


def is_compiling() -> bool:
    """False."""
    return False


def is_compile_supported(device_type: str) -> bool:
    """False."""
    return False


def disable_cache_limit() -> contextlib.AbstractContextManager[None]:
    """A block in which compilations are not counted; there are none."""
    return contextlib.nullcontext()


def is_dynamo_compiling() -> bool:
    """False."""
    return False


def is_exporting() -> bool:
    """False."""
    return False


def cudagraph_mark_step_begin() -> None:
    """Nothing: steps are not recorded behind the program's back."""


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()
) -> Any:
    """What the one function returns for the operands where `pred` is True, and else the other."""
    return (true_fn if pred else false_fn)(*operands)


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """Names that `compile` takes for a backend; all of them are without effect."""
    return sorted(BACKENDS if exclude_tags else BACKENDS + FOR_DEBUGGING)


__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable",
    "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "nested_compile_region", "reset", "set_stance",
    "wrap_numpy",
]  # fmt: skip
