"""`torch.backends.mkldnn`: oneDNN, which is not used."""

from __future__ import annotations

enabled = False
deterministic = False
allow_tf32 = False


def is_available() -> bool:
    """False."""
    return False


__all__ = ["allow_tf32", "deterministic", "enabled", "is_available"]
