"""Checks and copies of arrays before and after they travel, in host memory or on a GPU."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


def in_order(array: np.ndarray) -> np.ndarray:
    """The elements of `array` in order, in one dimension: itself where it can be."""
    return array.reshape(-1) if array.flags.c_contiguous else array.flatten()


def new(like: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """An array to be filled, of the dtype of `like`, and on a GPU if that is there."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, like.dtype)
    return np.empty_like(like, shape=shape, order="C")


def filled(out: np.ndarray | None, like: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array of `shape` that a result fills: `out`, whose elements are in order and not among those sent, or a new one."""
    return new(like, shape) if out is None else out.reshape(shape)


def write_back(array: np.ndarray, flat: np.ndarray) -> None:
    """Put elements in order back where they came from."""
    array[...] = flat.reshape(array.shape)


def check_array(name: str, array: np.ndarray, writes: bool = False) -> None:
    """Raise TypeError or ValueError for an array that cannot travel. writes: its result is written into it."""
    if not isinstance(array, np.ndarray):
        if not hasattr(array, "__cuda_array_interface__"):
            raise TypeError(f"{name}: expected a numpy array, got {type(array).__name__}")
    elif writes and not array.flags.writeable:
        raise ValueError(f"{name}: the array is read-only, and its result would be written into it")
    refuse_objects(array.dtype)


@lru_cache(maxsize=64)
def refuse_objects(dtype: np.dtype) -> None:
    """Raise ValueError for what has no meaning in another process: addresses, foreign byte orders."""
    if dtype.hasobject or not dtype.isnative:
        raise ValueError(f"arrays of dtype {dtype} cannot travel between ranks; convert to native numbers")
