"""Who is watching the ops that run; see `recording.py`."""

from __future__ import annotations

from typing import Any

recorders: list[Any] = []
"""The active `Recorder`, if any: ops tell it of arrays that come about without a kernel of their own."""
