"""Collectives while a rank captures a CUDA graph: each replay carries them out on the GPU, and nothing of them on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backend.device import THROUGH_HOST, capturing
from ...core.errors import CaptureError
from ..protocol import guard


def check(
    signature: guard.Signature, array: Any, transport: str, size: int, least: Callable[[np.ndarray, str], Any]
) -> None:
    """`CaptureError` for a collective that replays would not carry out. least: an all-reduce between the hosts."""
    now = capturing.now
    if now is None:
        return
    if isinstance(array, np.ndarray):
        raise CaptureError(
            f"{signature} takes place on the host, so that replays of a CUDA graph would not repeat it"
        )
    if size == 1:
        return
    if transport != "nccl":
        raise CaptureError(f"{signature} {THROUGH_HOST}")
    if now.agree is None:
        now.agree = lambda good: _agreed(good, least)


def _agreed(good: bool, least: Callable[[np.ndarray, str], Any]) -> bool:
    """Whether the capture was good on all ranks: otherwise some would replay what others do step by step."""
    told = np.array([good], np.int32)
    least(told, "min")
    return bool(told[0])
