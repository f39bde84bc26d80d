"""The active recorders of ops; see `recording.py`."""

from __future__ import annotations

from typing import Any

from ...core.rank_local import RankLocal

recorders: list[Any] = []
"""The active `Recorder`, if any: ops tell it of arrays that come about without a kernel of their own."""

exporting: RankLocal[bool] = RankLocal(bool)
"""True while a forward is written down for another runtime, which needs all of it to be made of ops."""
