"""Modules whose forward is computed again in backward, or whose saved tensors wait in host memory, wrapped from outside.

Source of names: torch.distributed.algorithms._checkpoint.checkpoint_wrapper, which FSDP programs use
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Any

from ...autograd.graph import save_on_cpu
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ...utils.checkpoint import checkpoint
from ..fsdp.wrap import Policy, lambda_auto_wrap_policy

_WRAPPED = "_checkpoint_wrapped_module"
_PREFIX = f"{_WRAPPED}."


class CheckpointImpl(Enum):
    """Which of `utils.checkpoint.checkpoint`'s ways: use_reentrant or not."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module):
    """`mod`, with another way to keep what its backward needs. State dicts have its own names."""

    adds_no_name = True  # to names of parameters in state dicts

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.register_state_dict_post_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    @property
    def module(self) -> Module:
        """What was wrapped."""
        return self._checkpoint_wrapped_module

    def __getattr__(self, name: str) -> Any:
        if name == _WRAPPED or name.startswith("__"):
            return super().__getattr__(name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: Any) -> Any:
        return self._checkpoint_wrapped_module[key]  # type: ignore[index]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """By their names in `mod`."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), parameter


class CheckpointWrapper(ActivationWrapper):
    """`mod`, of which backward computes the forward again.

    checkpoint_fn: in place of `utils.checkpoint.checkpoint`; options go to it.
    """

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            reentrant = checkpoint_impl is CheckpointImpl.REENTRANT
            checkpoint_fn = partial(checkpoint, use_reentrant=reentrant)
        self.checkpoint_fn = partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """`mod(*args, **kwargs)`."""
        return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **kwargs)


class OffloadWrapper(ActivationWrapper):
    """`mod`, of which what backward needs waits in host memory."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """`mod(*args, **kwargs)`."""
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


def offload_wrapper(module: Module) -> OffloadWrapper:
    """`module` in an OffloadWrapper."""
    return OffloadWrapper(module)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> CheckpointWrapper:
    """`module` in a CheckpointWrapper."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Policy | None = None,
) -> None:
    """Wrap those modules below `model` in place for which `check_fn`, or the policy, says so; not `model` itself."""
    policy: Any = auto_wrap_policy or partial(lambda_auto_wrap_policy, lambda_fn=check_fn)
    wrapped = [
        (parent, name, child)
        for parent in list(model.modules())
        for name, child in parent.named_children()
        if policy(module=child, recurse=False, nonwrapped_numel=sum(p.numel() for p in child.parameters()))
    ]
    for parent, name, child in wrapped:
        parent._modules[name] = checkpoint_wrapper_fn(child)


def _without_prefix(module: Module, state_dict: dict[str, Any], prefix: str, local_metadata: Any) -> None:
    _renamed(state_dict, f"{prefix}{_PREFIX}", prefix)


def _with_prefix(module: Module, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
    _renamed(state_dict, prefix, f"{prefix}{_PREFIX}")


def _renamed(state_dict: dict[str, Any], old: str, new: str) -> None:
    for key in [key for key in state_dict if key.startswith(old)]:
        state_dict[new + key[len(old) :]] = state_dict.pop(key)
