"""Communication hooks by their names in one enumeration: `register_ddp_comm_hook`."""

from __future__ import annotations

from enum import Enum, member
from functools import partial
from typing import Any

from . import debugging_hooks, default_hooks, powerSGD_hook, quantization_hooks

__all__ = [
    "DDPCommHookType", "debugging_hooks", "default_hooks", "powerSGD_hook", "quantization_hooks", "register_ddp_comm_hook",
]  # fmt: skip


def _plain(hook: Any, model: Any, state: Any) -> None:
    model.register_comm_hook(state, hook)


def _power_sgd(hook: Any, rank: int, model: Any, state: Any) -> None:
    model.register_comm_hook(powerSGD_hook.PowerSGDState(state, matrix_approximation_rank=rank), hook)


class DDPCommHookType(Enum):
    """How `register_ddp_comm_hook` is told which hook to register."""

    ALLREDUCE = member(partial(_plain, default_hooks.allreduce_hook))
    FP16_COMPRESS = member(partial(_plain, default_hooks.fp16_compress_hook))
    BF16_COMPRESS = member(partial(_plain, default_hooks.bf16_compress_hook))
    QUANTIZE_PER_TENSOR = member(partial(_plain, quantization_hooks.quantization_pertensor_hook))
    QUANTIZE_PER_CHANNEL = member(partial(_plain, quantization_hooks.quantization_perchannel_hook))
    POWER_SGD = member(partial(_power_sgd, powerSGD_hook.powerSGD_hook, 1))
    POWER_SGD_RANK2 = member(partial(_power_sgd, powerSGD_hook.powerSGD_hook, 2))
    BATCHED_POWER_SGD = member(partial(_power_sgd, powerSGD_hook.batched_powerSGD_hook, 1))
    BATCHED_POWER_SGD_RANK2 = member(partial(_power_sgd, powerSGD_hook.batched_powerSGD_hook, 2))
    NOOP = member(partial(_plain, debugging_hooks.noop_hook))


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Register the hook with the DDP module `model`; `state` is the process group, or None for the default."""
    if not isinstance(comm_hook_type, DDPCommHookType):
        raise TypeError(
            f"register_ddp_comm_hook: comm_hook_type must be one of {', '.join(kind.name for kind in DDPCommHookType)} "
            f"of DDPCommHookType, got {comm_hook_type!r}"
        )
    comm_hook_type.value(model=model, state=state)
