"""Hooks of optimizers: around steps, saving and loading, on one optimizer or on all."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..autograd.graph import RemovableHandle
from ..backend.device import capturing
from ..core import spans
from ..core.taping import taping

Hook = Callable[..., Any]

_KINDS = (
    "step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post",
)  # fmt: skip

_of_all: dict[str, OrderedDict[int, Hook]] = {"step_pre": OrderedDict(), "step_post": OrderedDict()}


def _add(hooks: OrderedDict[int, Hook], hook: Hook, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before each step of every optimizer, ahead of the optimizer's own."""
    return _add(_of_all["step_pre"], hook)


def register_optimizer_step_post_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after each step of every optimizer, behind the optimizer's own."""
    return _add(_of_all["step_post"], hook)


class HasHooks:
    """What an optimizer needs to have hooks; its `step` gets them around itself."""

    _opt_called = False  # read by lr schedulers, which should follow the first step
    _hooks: dict[str, OrderedDict[int, Hook]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])

    def _without_hooks(self) -> None:
        self._hooks = {kind: OrderedDict() for kind in _KINDS}

    def _patch_step_function(self) -> None:
        """For optimizers of libraries that do not call `__init__` of this class: make room for hooks."""
        if "_hooks" not in self.__dict__:
            self._without_hooks()

    def _call_hooks(self, kind: str, argument: Any = None) -> Any:
        """Call the hooks of one kind, with `argument` or what a hook put in its place, which is returned."""
        for hook in list(self._hooks[kind].values()):
            changed = hook(self) if argument is None else hook(self, argument)
            argument = argument if changed is None else changed
        return argument

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; (args, kwargs) that it returns replace them."""
        return _add(self._hooks["step_pre"], hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return _add(self._hooks["step_post"], hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before the state is collected."""
        return _add(self._hooks["state_dict_pre"], hook, prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after; a result replaces the state_dict."""
        return _add(self._hooks["state_dict_post"], hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading; a result replaces the state_dict."""
        return _add(self._hooks["load_state_dict_pre"], hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after loading."""
        return _add(self._hooks["load_state_dict_post"], hook, prepend)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with the hooks around it, once also where a subclass calls its parent's.

    A wrapper of an optimizer that does not run `Optimizer.__init__`, as libraries write them, has no hooks.

    The positional arguments that hooks see begin with the optimizer itself, as in PyTorch.
    """

    @functools.wraps(step)
    def stepped(*args: Any, **kwargs: Any) -> Any:
        self = args[0]
        if type(self).step is not stepped or "_hooks" not in vars(self):
            return step(*args, **kwargs)
        if taping.now is not None:
            return taping.now.call(stepped, args, kwargs)
        self._opt_called = True
        if capturing.now is not None:
            self._check_captured()
        began = spans.now() if spans.recorders else 0.0
        for hook in [*_of_all["step_pre"].values(), *self._hooks["step_pre"].values()]:
            changed = hook(self, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        f"{type(self).__name__}.step: a pre-hook must return None or a tuple of (new_args, "
                        f"new_kwargs), but got {changed!r}"
                    )
                args, kwargs = changed
        result = step(*args, **kwargs)
        if began:
            spans.tell("optimizer", type(self).__name__, began)
        for hook in [*self._hooks["step_post"].values(), *_of_all["step_post"].values()]:
            hook(self, args, kwargs)
        return result

    return stepped
