"""Random numbers of the transforms, drawn from the default generator in torchvision's order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...backend import dtype as dtypes
from ...random import rank_generator


def number(low: float = 0.0, high: float = 1.0) -> float:
    """A number in [low, high), of the default dtype."""
    return rank_generator().uniform(1, dtypes.get_default_dtype().numpy, low, high).item()


def ratio(low: float, high: float) -> float:
    """A number in [low, high) whose logarithm is uniform."""
    kind = dtypes.get_default_dtype().numpy
    return np.exp(rank_generator().uniform(1, kind, math.log(low), math.log(high))).item()


def sides(area: int, scale: Sequence[float], ratios: Sequence[float]) -> tuple[int, int]:
    """The sides of a rectangle: a share of `area` from `scale`, and the first side over the second from `ratios`."""
    share = area * number(*scale)
    aspect = ratio(*ratios)
    return round(math.sqrt(share * aspect)), round(math.sqrt(share / aspect))


def integer(stop: int) -> int:
    """An integer in [0, stop)."""
    return rank_generator().integers(0, stop, 1).item()


def order(count: int) -> list[int]:
    """0 … count - 1 in random order."""
    return rank_generator().permutation(count).tolist()
