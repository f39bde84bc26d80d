"""Memory of a GPU: allocated by this process, cached by CuPy's pool, freed on request.

A process that has not used a GPU holds no memory on it, also where there is none.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ..backend.cuda import library
from .devices import index_of
from .streams import take_back

_MIB = 1 << 20


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of a GPU's memory, other programs counted in."""
    cupy, _ = library.cupy_and_count()
    return cupy.cuda.Device(index_of(device)).mem_info


def memory_allocated(device: Any = None) -> int:
    """Bytes of a GPU's memory that arrays of this process occupy."""
    return _pool_bytes(device, "used_bytes")


def memory_reserved(device: Any = None) -> int:
    """Bytes of a GPU's memory that this process holds, for arrays or for later ones."""
    return _pool_bytes(device, "total_bytes")


def held() -> int:
    """Bytes of memory that this process holds on all GPUs that it has used."""
    return sum(memory_reserved(index) for index in sorted(library.used))


def max_memory_allocated(device: Any = None) -> int:
    """A bound for the most bytes that arrays occupied at once since `empty_cache`: what is held now.

    CuPy's pool keeps no such maximum, but it gives nothing back before `empty_cache`, so it
    holds at least as much as was ever in use.
    """
    return _pool_bytes(device, "total_bytes")


max_memory_reserved = max_memory_allocated
memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """Begin the bound of `max_memory_allocated` anew, by giving back what no array occupies."""
    empty_cache()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Nothing: the pool counts no allocations."""


def memory_stats(device: Any = None) -> OrderedDict[str, int]:
    """PyTorch's names of the figures above; empty where CUDA was not used yet."""
    if not library.in_use():
        return OrderedDict()
    used, held = memory_allocated(device), memory_reserved(device)
    return OrderedDict(
        {
            "allocated_bytes.all.current": used,
            "allocated_bytes.all.peak": held,
            "reserved_bytes.all.current": held,
            "reserved_bytes.all.peak": held,
        }
    )


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The figures above as text."""
    free, total = mem_get_info(device)
    rows = {
        "arrays": memory_allocated(device),
        "held by the pool": memory_reserved(device),
        "free on the GPU": free,
        "size of the GPU": total,
    }
    lines = [f"Memory of cuda:{index_of(device)}, MiB"]
    return "\n".join([*lines, *(f"{name:<20}{size / _MIB:>12.1f}" for name, size in rows.items())])


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Let the pool hold at most this part of the GPU's memory, between 0 and 1."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    cupy, _ = library.cupy_and_count()
    with cupy.cuda.Device(index_of(device)):
        cupy.get_default_memory_pool().set_limit(fraction=fraction)


def empty_cache() -> None:
    """Give memory that no array occupies back to the GPUs, all of them; the pinned host memory too."""
    if not library.in_use():
        return
    take_back()
    cupy, count = library.cupy_and_count()
    for index in range(count):
        if _pool_bytes(index, "total_bytes"):
            with cupy.cuda.Device(index):
                cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()


def ipc_collect() -> None:
    """Nothing: memory is not shared between processes."""


def _pool_bytes(device: Any, what: str) -> int:
    if not library.in_use():
        return 0
    cupy, _ = library.cupy_and_count()
    with cupy.cuda.Device(index_of(device)):
        return int(getattr(cupy.get_default_memory_pool(), what)())


__all__ = [
    "empty_cache", "ipc_collect", "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_cached", "memory_reserved", "memory_stats", "memory_summary",
    "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_memory_stats", "set_per_process_memory_fraction",
]  # fmt: skip
