"""The loss of scores that are divided among ranks by classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..overriding import summed_losses


@contextmanager
def loss_parallel() -> Iterator[None]:
    """A block in which `cross_entropy` of a DTensor takes an ordinary tensor of classes, and its result is on all ranks.

    Scores that are divided by classes stay divided: ranks exchange the largest score and the sum of each row. That is so
    outside of this block, too.
    """
    with summed_losses():
        yield
