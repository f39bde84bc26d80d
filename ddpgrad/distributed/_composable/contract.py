"""`contract`: marks a function that is applied to a module once, may keep a state for it, and renames nothing in it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Any

from ...nn.modules.module import Module

_STATES, _APPLIED = "__composable_api_state_key", "__composable_api_registry_key"


class _State:
    """What a function keeps for a module."""


class RegistryItem:
    """A function that was applied."""


def contract(state_cls: type = _State) -> Callable[[Callable[..., Any]], Any]:
    """Marks a function of a module, or of a list of modules, and what else it takes.

    `function.state(module)` is the object of `state_cls` that it has for a module, None where it was not applied.

    Called, the function raises AssertionError where it was applied before, and RuntimeError where it changed the name of
    a parameter, a buffer or a submodule.
    """

    def mark(function: Callable[..., Any]) -> Any:
        @wraps(function)
        def called(module: Any, *args: Any, **kwargs: Any) -> Any:
            modules = [module] if isinstance(module, Module) else list(module)
            state = state_cls()
            for one in modules:
                applied = vars(one).setdefault(_APPLIED, OrderedDict())
                if function.__name__ in applied:
                    raise AssertionError(
                        f"{function.__name__} has already been applied to this {type(one).__name__}: a composable function is "
                        f"applied once. Applied so far: {', '.join(applied)}"
                    )
                applied[function.__name__] = RegistryItem()
                vars(one).setdefault(_STATES, OrderedDict())[called] = state
            before = [_names(one) for one in modules]
            result = function(module, *args, **kwargs)
            after = modules if result is None else [result] if isinstance(result, Module) else list(result)
            if [_names(one) for one in after] != before:
                raise RuntimeError(
                    f"{function.__name__}: composable functions cannot modify FQNs, the names of parameters, buffers and modules"
                )
            return module if result is None else result

        def state(module: Module) -> Any:
            return vars(module).get(_STATES, {}).get(called)

        vars(called)["state"] = state
        return called

    return mark


def _names(module: Module) -> list[list[str]]:
    named = (module.named_parameters, module.named_buffers, module.named_modules)
    return [[name for name, _ in found(remove_duplicate=False)] for found in named]


def _get_registry(module: Module) -> dict[str, RegistryItem] | None:
    """The functions that were applied to `module`, by name; None if none was."""
    return vars(module).get(_APPLIED)


def run_by(module: Module, forward: Callable[..., Any]) -> None:
    """Let `forward(module, original, *args, **kwargs)` run the module; its class gets a subclass of the same name."""
    cls = type(module)

    def runs(self: Any, *args: Any, **kwargs: Any) -> Any:
        return forward(self, lambda *a, **k: cls.forward(self, *a, **k), *args, **kwargs)

    module.__class__ = type(
        cls.__name__, (cls,), {"forward": runs, "__module__": cls.__module__, "__doc__": cls.__doc__}
    )
