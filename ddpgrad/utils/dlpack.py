"""DLPack, the exchange of arrays between libraries without copying: `from_dlpack` and `to_dlpack`."""

from __future__ import annotations

from ..ops.data import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
