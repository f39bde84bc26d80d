"""CuPy's memory pool without pooling: every array is a block of the machine's, with its own guards and NaNs."""

import ctypes
from typing import Any


class GuardedPool:
    """The methods of `cupy.cuda.MemoryPool`. `total_bytes` is the most since `free_all_blocks`, as a pool holds it."""

    def __init__(self, machine: ctypes.CDLL) -> None:
        self._machine, self._limits = machine, dict[int, int]()

    def malloc(self, size: int) -> Any:
        import cupy

        device = self._machine.fakecuda_current_device()
        limit = self._limits.get(device, 0)
        if limit and self.used_bytes() + size > limit:
            raise cupy.cuda.memory.OutOfMemoryError(size, self.used_bytes(), limit)
        memory = cupy.cuda.Memory(size)
        if memory.ptr:
            stream = cupy.cuda.get_current_stream().ptr
            self._machine.fakecuda_pooled(ctypes.c_void_p(memory.ptr), ctypes.c_void_p(stream))
        return cupy.cuda.MemoryPointer(memory, 0)

    def used_bytes(self) -> int:
        return self._held()[0]

    def total_bytes(self) -> int:
        return self._held()[1]

    def free_bytes(self) -> int:
        used, total = self._held()
        return total - used

    def n_free_blocks(self) -> int:
        return 0

    def free_all_blocks(self, stream: Any = None) -> None:
        self._held(forget=True)

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        import cupy

        if fraction is not None:
            size = int(fraction * cupy.cuda.Device().mem_info[1])
        self._limits[self._machine.fakecuda_current_device()] = size or 0

    def get_limit(self) -> int:
        return self._limits.get(self._machine.fakecuda_current_device(), 0)

    def _held(self, forget: bool = False) -> tuple[int, int]:
        now, most = ctypes.c_size_t(), ctypes.c_size_t()
        device = self._machine.fakecuda_current_device()
        self._machine.fakecuda_held(device, ctypes.byref(now), ctypes.byref(most), int(forget))
        return now.value, most.value
