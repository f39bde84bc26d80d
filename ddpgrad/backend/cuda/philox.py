"""Random numbers on the GPU: a counter-based generator, whose numbers depend on a key and their place only.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011). A key is one draw of the rank's generator on the host.
"""

from __future__ import annotations

import math
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]
import numpy as np

from .capture import Key
from .source import elementwise

Array = Any

PHILOX = r"""
__device__ void philox(unsigned long long counter, unsigned long long seed, bool there, unsigned int* word) {
  if (there) seed = *(const unsigned long long*)seed;
  word[0] = (unsigned int)counter; word[1] = (unsigned int)(counter >> 32); word[2] = word[3] = 0u;
  unsigned int low_key = (unsigned int)seed, high_key = (unsigned int)(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const unsigned long long a = 0xD2511F53ull * word[0], b = 0xCD9E8D57ull * word[2];
    word[0] = (unsigned int)(b >> 32) ^ word[1] ^ low_key;
    word[1] = (unsigned int)b;
    word[2] = (unsigned int)(a >> 32) ^ word[3] ^ high_key;
    word[3] = (unsigned int)a;
    low_key += 0x9E3779B9u;
    high_key += 0xBB67AE85u;
  }
}
"""
"""philox(counter, key, whether it is the address of the key, words): four words of 32 bits."""

# One thread a counter, which makes four numbers of 24 bits, or for float64 two of 53.
_UNITS = """
    unsigned int word[4];
    philox(i, seed, there, word);
    const int many = sizeof(A) == 8 ? 2 : 4;
    A unit[4];
    for (int k = 0; k < many; ++k) {
      const unsigned long long wide = (unsigned long long)word[2 * k & 3] << 32 | word[(2 * k + 1) & 3];
      unit[k] = sizeof(A) == 8 ? (A)((wide >> 11) * 0x1p-53) : (A)((word[k] >> 8) * 0x1p-24f);
    }
"""
_uniform = elementwise(
    "int64 count, float64 low, float64 high, uint64 seed, bool there",
    "raw T out",
    f"""{_UNITS}
    for (int k = 0; k < many && many * i + k < count; ++k) {{
      const T drawn = (T)((A)low + unit[k] * (A)(high - low));
      out[many * i + k] = drawn == (T)(A)high ? (T)(A)low : drawn;
    }}
    """,
    "uniform_draws",
    PHILOX,
)
# Box-Muller: two normal numbers of two uniform ones, the first of which is not 0.
_normal = elementwise(
    "int64 count, float64 mean, float64 std, uint64 seed, bool there",
    "raw T out",
    f"""{_UNITS}
    for (int k = 0; k < many; k += 2) {{
      const A first = sizeof(A) == 8 ? (A)1 - unit[k] : ((A)word[k] + (A)1) * (A)0x1p-32;
      const A radius = sqrt((A)-2 * log(first)), angle = (A){2 * math.pi!r} * unit[k + 1];
      const long long place = many * i + k;
      if (place < count) out[place] = (T)(radius * cos(angle) * (A)std + (A)mean);
      if (place + 1 < count) out[place + 1] = (T)(radius * sin(angle) * (A)std + (A)mean);
    }}
    """,
    "normal_draws",
    PHILOX,
)
_words = elementwise(
    "int64 count, uint64 seed, bool there",
    "raw T out",
    """
    unsigned int word[4];
    philox(i, seed, there, word);
    for (int k = 0; k < 2 && 2 * i + k < count; ++k) {
      out[2 * i + k] = (unsigned long long)word[2 * k] << 32 | word[2 * k + 1];
    }
    """,
    "word_draws",
    PHILOX,
)


def place_of(key: int) -> tuple[np.uint64, bool]:
    """A kernel's arguments `seed` and `there`: the key, or where each replay of a captured graph finds its own."""
    return (np.uint64(key.address), True) if isinstance(key, Key) else (np.uint64(key % 2**64), False)


def uniform_draws(shape: tuple[int, ...], key: int, dtype: Any, low: float, high: float) -> Array:
    """A new array of floats in [low, high); one that rounds to `high` is `low`."""
    return _drawn(_uniform, shape, key, dtype, low, high)


def normal_draws(shape: tuple[int, ...], key: int, dtype: Any, mean: float, std: float) -> Array:
    """A new array of normal numbers with `mean` and `std`."""
    return _drawn(_normal, shape, key, dtype, mean, std)


def word_draws(shape: tuple[int, ...], key: int) -> Array:
    """A new array of draws of 64 bits, as uint64."""
    return _drawn(_words, shape, key, np.uint64)


def _drawn(kernel: Any, shape: tuple[int, ...], key: int, dtype: Any, *bounds: float) -> Array:
    out = cupy.empty(shape, dtype)
    if out.size:
        each = 2 if out.itemsize == 8 else 4
        kernel(out.size, *bounds, *place_of(key), out, size=-(-out.size // each))
    return out
