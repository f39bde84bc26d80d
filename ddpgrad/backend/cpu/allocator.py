"""What the C library does with memory that arrays have freed.

Every training step asks for arrays of the same sizes. By default glibc gives large ones back to the
system at once and asks for new pages in the next step, each of which the kernel has to clear: for the
GPT of the benchmarks 10,000 pages a step. So it is told to keep them, up to the most that was ever in use.
"""

from __future__ import annotations

import ctypes

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 << 20  # glibc takes no larger one; arrays above it are few
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Keep freed memory for the next arrays. False where the C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD) and mallopt(_M_TRIM_THRESHOLD, _NEVER))
