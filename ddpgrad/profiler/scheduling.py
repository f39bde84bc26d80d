"""What a profiler does in which step."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable


class ProfilerAction(enum.Enum):
    """What a profiler does in a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = 0, 1, 2, 3


RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """`profile(schedule=…)`: cycles of `wait` idle steps, `warmup` discarded and `active` recorded ones.

    repeat: number of cycles, 0 for no end. skip_first: steps before the first cycle. skip_first_wait: if not 0,
    the first cycle has no idle steps. AssertionError for negative numbers and for active=0, as in PyTorch.
    Source: https://pytorch.org/docs/stable/profiler.html
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(
            "schedule: wait, warmup, repeat and skip_first must not be negative, and active must be at least 1; got "
            f"wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, skip_first={skip_first}"
        )
    if warmup == 0:
        warnings.warn(
            "Profiler won't be using warmup, this can skew profiler results: the first step is slower than the others",
            stacklevel=2,
        )
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        place = step % cycle
        if (repeat and step // cycle >= repeat) or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def always(step: int) -> ProfilerAction:
    """The schedule of a profiler that is given none."""
    return ProfilerAction.RECORD
