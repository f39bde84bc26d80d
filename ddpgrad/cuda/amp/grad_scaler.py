"""`GradScaler` under the name of PyTorch's file."""

from . import GradScaler

__all__ = ["GradScaler"]
