"""`torch.backends.opt_einsum`: the library that PyTorch may ask for the order of an einsum."""

from __future__ import annotations

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """False: `einsum` finds the order itself."""
    return False


__all__ = ["enabled", "is_available", "strategy"]
