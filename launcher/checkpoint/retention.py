"""Chooses the checkpoints of a run that stay: the newest, every n-th, the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpgrad.core.errors import CheckpointError

from .manifest import read_manifest


@dataclass(frozen=True)
class Retention:
    """keep: how many of the newest (None: all); keep_every: those of a step that this divides; best: 'min' or 'max'."""

    keep: int | None
    keep_every: int | None
    best: str | None

    def __post_init__(self) -> None:
        for name, number in (("keep", self.keep), ("keep_every", self.keep_every)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, or None; got {number}")
        if self.best not in (None, "min", "max"):
            raise ValueError(f"best must be 'min', 'max' or None; got {self.best!r}")

    def doomed(self, found: Sequence[tuple[int, Path]]) -> list[Path]:
        """The checkpoints to delete. found: (step, folder) of each, the newest last."""
        if self.keep is None:
            return []
        old = found[: -self.keep]
        if self.keep_every is not None:
            old = [(step, path) for step, path in old if step % self.keep_every]
        best = self._best([path for _, path in found]) if self.best is not None and old else None
        return [path for _, path in old if path != best]

    def _best(self, paths: Sequence[Path]) -> Path | None:
        # No number is neither more nor less than NaN, which would stay the best wherever it came first.
        metrics = {
            path: metric for path in paths if (metric := _metric(path)) is not None and metric == metric
        }
        if not metrics:
            return None
        return (min if self.best == "min" else max)(metrics, key=metrics.__getitem__)


def _metric(path: Path) -> float | None:
    """The metric of a checkpoint; None if it has none, or is damaged."""
    try:
        return read_manifest(path).metric
    except (CheckpointError, OSError):
        return None
