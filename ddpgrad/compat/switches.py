"""Modules of switches of compilers that are not there: `torch._dynamo.config` and its like. They are kept, and read back."""

from __future__ import annotations

import collections
import contextlib
import warnings
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from ..core.missing import missing
from .aliases import ROOT

_FIRST: dict[str, dict[str, Any]] = {
    "_dynamo.config": {
        "accumulated_cache_size_limit": 256, "assume_static_by_default": True, "automatic_dynamic_shapes": True,
        "cache_size_limit": 8, "capture_dynamic_output_shape_ops": False, "capture_scalar_outputs": False,
        "compiled_autograd": False, "guard_nn_modules": True, "inline_inbuilt_nn_modules": True, "optimize_ddp": True,
        "recompile_limit": 8, "suppress_errors": False, "verbose": False,
    },
    "_functorch.config": {"activation_memory_budget": 1.0, "donated_buffer": True, "functionalize_rng_ops": False},
    "_inductor.config": {
        "coordinate_descent_tuning": False, "cpp_wrapper": False, "debug": False, "epilogue_fusion": True,
        "fallback_random": False, "freezing": False, "fx_graph_cache": True, "max_autotune": False,
        "post_grad_custom_post_pass": None, "post_grad_custom_pre_pass": None, "pre_grad_custom_pass": None,
        "shape_padding": True,
    },
}  # fmt: skip
"""The switches that programs read before they set them, with PyTorch's values."""

_GROUPS = ("aot_inductor", "cpp", "cuda", "cutlass", "eager_numerics", "rocm", "trace", "triton")
"""Switches of `_inductor.config` that have switches themselves."""


class Switches(ModuleType):
    """A module or a group of switches: what was set, under any name."""

    def __getattr__(self, name: str) -> Any:
        if name in _GROUPS:
            group = Switches(f"{self.__name__}.{name}")
            setattr(self, name, group)
            return group
        raise missing(self.__name__, vars(self), name)

    def patch(self, *args: Any, **changes: Any) -> contextlib.AbstractContextManager[None]:
        """A block, or decorator, with some switches changed: `patch(name=value)`, `patch("a.b", value)`, `patch({...})`."""
        if args and isinstance(args[0], str):
            changes = {args[0]: args[1]}
        return _patched(self, {**(args[0] if args and isinstance(args[0], dict) else {}), **changes})


@contextlib.contextmanager
def _patched(config: Switches, changes: dict[str, Any]) -> Iterator[None]:
    kept: list[tuple[Switches, dict[str, Any]]] = []
    for name, value in changes.items():
        *groups, last = name.split(".")
        place = config
        for group in groups:
            place = getattr(place, group)
        kept.append((place, dict(vars(place))))
        setattr(place, last, value)
    try:
        yield
    finally:
        for place, before in reversed(kept):
            vars(place).clear()
            vars(place).update(before)


@cache
def find(name: str) -> Switches | None:
    """The module of switches `name` (`'_dynamo.config'`); None when it is none."""
    if name not in _FIRST:
        return None
    module = Switches(f"{ROOT}.{name}", f"`torch.{name}`: kept, and without effect.")
    vars(module).update(_FIRST[name], __path__=[])
    return module


counters: collections.defaultdict[str, collections.Counter[str]] = collections.defaultdict(
    collections.Counter
)
"""What a compiler would have counted: nothing."""


def maybe_enable_compiled_autograd(
    should_enable: bool, fullgraph: bool = True, dynamic: bool = True
) -> contextlib.AbstractContextManager[None]:
    """A block whose backward passes run as they are."""
    return contextlib.nullcontext()


@cache
def warn_once(msg: str, stacklevel: int = 1) -> None:
    """A warning that is given once for each text."""
    warnings.warn(msg, stacklevel=stacklevel + 1)
