"""`torch.utils.hooks`: the handles of hooks."""

from __future__ import annotations

from typing import Any

from ..autograd.nodes import RemovableHandle


def unserializable_hook(f: Any) -> Any:
    """`f` itself, marked: in PyTorch a hook that is dropped when its tensor is pickled, with a warning."""
    f.__torch_unserializable__ = True
    return f


__all__ = ["RemovableHandle", "unserializable_hook"]
