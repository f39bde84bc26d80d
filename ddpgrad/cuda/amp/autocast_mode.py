"""`autocast` and what custom Functions need under it, under the name of PyTorch's file."""

from . import autocast, custom_bwd, custom_fwd

__all__ = ["autocast", "custom_bwd", "custom_fwd"]
