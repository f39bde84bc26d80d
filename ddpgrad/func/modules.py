"""The states of several modules stacked, and modules without state of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.tensor import Tensor
from ..nn.modules.batchnorm import _BatchNorm as BatchNorm
from ..nn.modules.module import Module
from ..ops.shape.stacking import stack


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let every batch norm in `root` use the statistics of the batch at hand, and keep none; in place.

    Running statistics are written to in forward, which a function of examples may not do.
    """
    for module in root.modules():
        if isinstance(module, BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(parameters, buffers) of modules of one kind, by name, each stacked along a new first dimension.

    The results are leaves of their own: changes do not reach the modules.
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({type(model) for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    return (
        _stacked([dict(model.named_parameters()) for model in models]),
        _stacked([dict(model.named_buffers()) for model in models]),
    )


def _stacked(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    found = {}
    for name, first in states[0].items():
        flags = {state[name].requires_grad for state in states}
        if len(flags) > 1:
            raise RuntimeError(f"Expected '{name}' of all models to have the same requires_grad")
        found[name] = stack([state[name].detach() for state in states]).requires_grad_(first.requires_grad)
    return found
