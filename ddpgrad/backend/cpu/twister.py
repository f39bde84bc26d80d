"""The Mersenne Twister (https://doi.org/10.1145/272991.272995), compiled: NumPy's numbers, whole vectors of them at a time.

Each function is given the address of the state of a NumPy MT19937, as its `ctypes.state_address` says it, and fills `out`. The state
is a key of 624 words, uint32, which is renewed in place, and behind it how many of its words are used up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.np.numpy_support import carray

from .element_loops import pointer
from .kernel_cache import cached, worth_compiling
from .normals import BLOCK, normal_blocks
from .vectormath import _OPTIONS, kernel

Array = np.ndarray[Any, Any]

_LENGTH, _AHEAD = 624, 397
_BEHIND = _LENGTH - _AHEAD
_HIGHEST, _LOWER, _MATRIX = np.uint32(0x80000000), np.uint32(0x7FFFFFFF), np.uint32(0x9908B0DF)
_ONE = np.uint32(1)
_PAIRS = 4096  # of words that are drawn before they are used: they stay in the first-level cache


@kernel
def _twist(word, following, far, out):
    for i in range(out.size):
        y = (word[i] & _HIGHEST) | (following[i] & _LOWER)
        out[i] = far[i] ^ (y >> _ONE) ^ (_MATRIX if y & _ONE else np.uint32(0))


@kernel
def _renew(key):
    """The next 624 words, in pieces that each read only what is known before them."""
    new = np.empty(_LENGTH, np.uint32)
    _twist(key[:_BEHIND], key[1 : _BEHIND + 1], key[_AHEAD:], new[:_BEHIND])
    for start in (_BEHIND, 2 * _BEHIND):
        end = min(start + _BEHIND, _LENGTH - 1)
        known = new[start - _BEHIND : end - _BEHIND]
        _twist(key[start:end], key[start + 1 : end + 1], known, new[start:end])
    _twist(key[-1:], new[:1], new[_AHEAD - 1 : _AHEAD], new[-1:])
    for i in range(_LENGTH):
        key[i] = new[i]


@kernel
def _tempered(word):
    y = np.uint64(word)
    y ^= y >> np.uint64(11)
    y ^= (y << np.uint64(7)) & np.uint64(0x9D2C5680)
    y ^= (y << np.uint64(15)) & np.uint64(0xEFC60000)
    return y ^ (y >> np.uint64(18))


@kernel
def words(state, out):
    """Draws of 32 bits, to out of uint32 or uint64."""
    key = carray(pointer(state, np.uint32(0)), (_LENGTH + 1,))
    key[_LENGTH] = _words(key[:_LENGTH], np.int64(key[_LENGTH]), out)


@kernel
def _words(key, position, out):
    done = 0
    while done < out.size:
        if position == _LENGTH:
            _renew(key)
            position = 0
        count = min(_LENGTH - position, out.size - done)
        drawn, target = key[position : position + count], out[done : done + count]
        for i in range(count):
            target[i] = _tempered(drawn[i])
        done += count
        position += count
    return position


@kernel
def unit(state, out):
    """Numbers in [0, 1) of 24 bits, one from each draw, to out of float32."""
    drawn = np.empty(2 * _PAIRS, np.uint32)
    for start in range(0, out.size, drawn.size):
        block = out[start : start + drawn.size]
        words(state, drawn[: block.size])
        for i in range(block.size):
            block[i] = np.float32(np.int32(drawn[i] & np.uint32(0xFFFFFF))) * np.float32(2.0**-24)


@cached
@njit(fastmath=False, **_OPTIONS)  # what is inlined is not to be regrouped
def normal(state, mean, std, out):
    """Normal numbers, to out of 16 float32 or more: blocks of 16 each, the last of which may overlap the one before."""
    unit(state, out)
    whole = out.size - out.size % BLOCK
    normal_blocks(out[:whole], out[:whole], mean, std)
    if whole < out.size:
        last = out[out.size - BLOCK :]
        unit(state, last)
        normal_blocks(last, last, mean, std)


@kernel
def below(state, limit, out):
    """Whether numbers of 53 bits, each from two draws, the high one first, are below `limit`, to out of bool."""
    drawn = np.empty(2 * _PAIRS, np.uint32)
    high, low = limit >> np.uint64(32), limit & np.uint64(0xFFFFFFFF)
    for start in range(0, out.size, _PAIRS):
        block = out[start : start + _PAIRS]
        words(state, drawn[: 2 * block.size])
        for i in range(block.size):
            first = np.uint64(drawn[2 * i]) & np.uint64(0x1FFFFF)
            block[i] = (first < high) | ((first == high) & (np.uint64(drawn[2 * i + 1]) < low))


@kernel
def swap_in_turn(draws, order):
    """Swap each element of `order` with itself or a later one, by draws of uint64."""
    for i in range(draws.size):
        j = i + np.int64(draws[i] % np.uint64(order.size - i))
        order[i], order[j] = order[j], order[i]


_FUNCTIONS = {"words": words, "unit": unit, "normal": normal, "below": below, "swap_in_turn": swap_in_turn}


def if_worth_it(name: str, draws: int) -> Any:
    """The function `name`, or None where NumPy makes so many draws before it is compiled."""
    function = _FUNCTIONS[name]
    return function if worth_compiling(function, draws) else None
