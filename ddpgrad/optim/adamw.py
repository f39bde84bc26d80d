"""`AdamW` under the name of PyTorch's file; it is in `adam.py`."""

from .adam import AdamW

__all__ = ["AdamW"]
