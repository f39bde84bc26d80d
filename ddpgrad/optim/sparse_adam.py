"""SparseAdam, which is refused with a reason."""

from __future__ import annotations

from typing import Any

from .optimizer import Optimizer


class SparseAdam(Optimizer):
    """PyTorch's Adam for sparse gradients, of which there are none here: to make one is an error."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "SparseAdam: gradients are dense here, also those of an Embedding with sparse=True; use Adam"
        )
