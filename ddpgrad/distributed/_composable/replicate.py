"""`replicate`: the gradients of a module are averaged over the ranks, as by DistributedDataParallel, which is not around it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...nn.modules.module import Module
from ..ddp.data_parallel import DistributedDataParallel
from .contract import contract, run_by


class _Replicas:
    """The DistributedDataParallel of a module."""

    ddp: DistributedDataParallel

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a module is copied before replicate() is applied to it")


@contract(state_cls=_Replicas)
def replicate(module: Module, ignored_modules: Iterable[Module] | None = None, **kwargs: Any) -> Module:
    """Let the ranks begin with one module's parameters, and average gradients in each backward.

    ignored_modules: parts of it, which each rank has for itself. kwargs: those of DistributedDataParallel.
    """
    apart = {id(part) for one in ignored_modules or () for part in one.modules()}
    names = [
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        if id(part) in apart
        for own in (part.named_parameters(recurse=False), part.named_buffers(recurse=False))
        for name, _ in own
    ]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
    ddp = replicate.state(module).ddp = DistributedDataParallel(module, **kwargs)

    def forward(self: Any, original: Any, *args: Any, **named: Any) -> Any:
        ddp._before_forward()
        return original(*args, **named)

    run_by(module, forward)
    return module
