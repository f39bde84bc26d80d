"""`torch.utils._mode_utils`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.dispatching import DisableTorchDispatch

no_dispatch = DisableTorchDispatch


def all_same_mode(modes: Sequence[Any]) -> bool:
    """Whether all of these are one mode."""
    return all(mode == modes[0] for mode in modes)
