"""`torch.utils.deterministic`: whether `empty` is filled while `use_deterministic_algorithms` is on."""

from __future__ import annotations

import sys
from types import ModuleType

from ..core.modes import uninitialised


class _Deterministic(ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether memory that nothing is written to holds NaN, or the largest integer. True by default."""
        return uninitialised.get().wanted

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        uninitialised.get().wanted = bool(mode)


sys.modules[__name__].__class__ = _Deterministic
