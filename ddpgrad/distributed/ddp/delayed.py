"""`DistributedDataParallel(delay_all_reduce_named_params=..., param_to_hook_all_reduce=...)`: what is to be reduced together."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.tensor import Tensor


def places(
    named: Sequence[tuple[str, Tensor]] | None, trigger: Tensor | None, trained: Sequence[tuple[str, Tensor]]
) -> list[int]:
    """The places among `trained` of the parameters that are `named`. ValueError for what cannot be delayed."""
    if named is None or trigger is None:
        raise ValueError(
            "delay_all_reduce_named_params and param_to_hook_all_reduce need to be set at the same time."
        )
    if not (trigger.requires_grad and trigger.is_leaf):
        raise ValueError(
            "DistributedDataParallel: param_to_hook_all_reduce must be a parameter that requires a gradient"
        )
    found = {id(p): i for i, (_, p) in enumerate(trained)}
    absent = [name for name, p in named if id(p) not in found]
    if absent:
        raise ValueError(
            f"DistributedDataParallel: delay_all_reduce_named_params has {', '.join(absent)}, which the ranks do not train: it "
            "must be a parameter of the module, require a gradient and not be ignored"
        )
    return sorted({found[id(p)] for _, p in named})
