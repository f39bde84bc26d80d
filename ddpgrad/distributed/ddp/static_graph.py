"""What the first backward of a static graph did, which later ones do again."""

from __future__ import annotations

from collections import Counter


class StaticGraph:
    """used: the parameters that got a gradient; None before the first backward.

    A part that is used several times under reentrant checkpoints gives its parameters a gradient each time, in passes
    within the pass. How often is known when the first backward has ended; in later ones the last of them counts.
    """

    def __init__(self) -> None:
        self.used: frozenset[int] | None = None
        self._often: Counter[int] = Counter()
        self.begin()

    def begin(self) -> None:
        """A backward begins."""
        self._came: Counter[int] = Counter()

    def is_last(self, i: int) -> bool:
        """Note a gradient of parameter i; whether it is the last, as far as that is known."""
        self._came[i] += 1
        return 0 < self._often[i] <= self._came[i]

    def ended(self) -> list[int]:
        """After a backward: the parameters of which `is_last` did not know it."""
        found = [i for i in self._came if not self._often[i]]
        self._often.update({i: self._came[i] for i in found})
        return found
