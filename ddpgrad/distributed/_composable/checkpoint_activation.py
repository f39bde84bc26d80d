"""`checkpoint`: backward computes the module's forward again."""

from __future__ import annotations

from typing import Any

from ...nn.modules.module import Module
from ...utils import checkpoint as recomputing
from .contract import contract, run_by


@contract()
def checkpoint(module: Module, **kwargs: Any) -> Module:
    """Let backward compute the forward of `module` again, in place of what it would keep.

    kwargs: those of `torch.utils.checkpoint.checkpoint`, but for use_reentrant=True, a NotImplementedError.
    """
    if kwargs.pop("use_reentrant", False):
        raise NotImplementedError(
            "use_reentrant=True is not supported in composable checkpoint. Please use torch.utils.checkpoint.checkpoint instead."
        )

    def forward(self: Any, original: Any, *args: Any, **named: Any) -> Any:
        return recomputing.checkpoint(original, *args, use_reentrant=False, **kwargs, **named)

    run_by(module, forward)
    return module
