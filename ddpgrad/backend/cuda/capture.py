"""What differs while a thread captures a CUDA graph: memory, constants, numbers that the host makes, and products.

A graph runs its kernels with the arguments that they were captured with. So arrays come from memory that only the graph
uses; what a table or an index needs from the host is copied once, beside the capture; and what the host makes anew for
each step (keys of random numbers, learning rates) becomes a *cell*: eight bytes on the GPU, which each replay fills by
one copy before the graph. CuPy is imported when a capture begins.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ...core.errors import CaptureError
from ..device import capture_forgets, capturing
from .library import cupy_and_count

Array = Any

_CELLS = 512  # of one block
_WORKSPACE = 32 << 20  # bytes that cuBLAS may use beside a product: what it takes itself on the largest GPUs
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class _Handles(threading.local):
    """cuBLAS's handles for captures of the calling thread, by GPU and number."""

    def __init__(self) -> None:
        self.by_number: dict[tuple[int, int], int] = {}


_handles = _Handles()


class Key(int):
    """A key of random numbers, as it was drawn while capturing; replays find theirs at `address` on the GPU."""

    address: int


def _exchanged(mode: int) -> int:
    """Let this thread interact with captures in `mode`; how it did before."""
    kept = ctypes.c_int(mode)
    _driver().cuThreadExchangeStreamCaptureMode(ctypes.byref(kept))
    return kept.value


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def new_pool() -> Any:
    """Memory for graphs: what is freed in it stays in it."""
    memory = cupy_and_count()[0].cuda.memory
    return memory.MemoryPool(lambda size: memory.MemoryPointer(memory.Memory(size), 0))


def constant(host: np.ndarray) -> Array:
    """A copy of a host array on the current GPU; while capturing it is made at once, and the graph keeps it."""
    cupy, _ = cupy_and_count()
    now = capturing.now
    return cupy.array(host) if now is None else now.constant(np.asarray(host))


def here() -> tuple[int, int]:
    """The current GPU and stream: what belongs to a constant that is kept, which other streams do not wait for."""
    cuda = cupy_and_count()[0].cuda
    return cuda.runtime.getDevice(), cuda.get_current_stream().ptr


def fill(own: Array, given: Array) -> None:
    """Copy an array of the same shape, type and GPU; by CUDA, without a kernel, where both are contiguous."""
    if own.flags.c_contiguous and given.flags.c_contiguous:
        own.data.copy_from_device_async(given.data, own.nbytes)
    else:
        own[...] = given


def copied(array: Array) -> Array:
    """A copy, made as `fill` does."""
    out = cupy_and_count()[0].empty(array.shape, array.dtype)
    fill(out, array)
    return out


class Capture:
    """One capture of the current stream, and what its graph needs besides its nodes. pool: as `new_pool` makes it."""

    def __init__(self, pool: Any, mode: int) -> None:
        cupy, _ = cupy_and_count()
        if capturing.now is not None:
            raise CaptureError("this thread captures a CUDA graph already: end that capture first")
        self._cupy, self._pool = cupy, pool
        self._stream = cupy.cuda.get_current_stream()
        self._stream.synchronize()  # constants go into memory that earlier work may have used
        self._beside = cupy.cuda.Stream(non_blocking=True)
        self._kept: list[Array] = []
        self._cells: list[tuple[Array, np.ndarray]] = []  # on the GPU and on the host
        self._fill: list[Callable[[], None]] = []
        self._keys: dict[int, Key] = {}
        self._states: dict[Any, Any] = {}  # of generators, before the capture drew
        self._workspaces: dict[int, int] = {}  # handles of cuBLAS by stream
        self.checks: list[Callable[[], str | None]] = []  # what is not as it was captured
        self.undo: list[Callable[[], None]] = []  # what is noted meanwhile, should the capture fail
        self.agree: Callable[[bool], bool] | None = None  # whether other ranks captured as well
        self._workspace_of(self._stream.ptr)
        _guard_pinned(cupy)
        for forget in capture_forgets:
            forget()
        # This thread may allocate, load kernels and copy on other streams, of which the graph sees nothing.
        self._before = _exchanged(_RELAXED)
        try:
            self._stream.begin_capture(mode)
        except BaseException:
            _exchanged(self._before)
            raise
        capturing.now = self
        self._allocator = cupy.cuda.using_allocator(pool.malloc)
        self._allocator.__enter__()

    def end(self) -> Any:
        """CuPy's graph of what was captured; CUDA's error where something broke the capture."""
        capturing.now = None
        for forget in capture_forgets:
            forget()
        _exchanged(self._before)
        self._allocator.__exit__(None, None, None)
        for generator, state in self._states.items():
            generator.set_state(state)
        self._states.clear()
        return self._stream.end_capture()

    def keep(self, array: Array) -> Array:
        """Let an array live as long as the graph."""
        self._kept.append(array)
        return array

    def constant(self, host: np.ndarray) -> Array:
        """A copy of a host array that is there before the graph runs, in memory that it does not use otherwise."""
        cupy = self._cupy
        with cupy.cuda.using_allocator(cupy.get_default_memory_pool().malloc):
            out = cupy.ndarray(host.shape, host.dtype)
        if host.nbytes:
            host = np.ascontiguousarray(host)
            kind = cupy.cuda.runtime.memcpyHostToDevice
            cupy.cuda.runtime.memcpyAsync(out.data.ptr, host.ctypes.data, host.nbytes, kind, self._beside.ptr)
            self._beside.synchronize()
        return self.keep(out)

    # -- what the host makes anew for each replay ----------------------------------------------

    def number(self, value: Callable[[], float]) -> Array:
        """What `value` returns before each replay, as a 0-d float64 array."""
        array, host, i = self._cell()
        numbers = host.view(np.float64)

        def fill() -> None:
            numbers[i] = value()

        self._fill.append(fill)
        return array.view(np.float64)[i]

    def key(self, generator: Any) -> Key:
        """The next key of a generator's stream. The same one, drawn again from a restored state, has one cell."""
        if generator not in self._states:
            self._states[generator] = generator.get_state()
        drawn = generator.raw64()
        key = self._keys.get(drawn)
        if key is None:
            array, host, i = self._cell()

            def fill() -> None:
                host[i] = generator.raw64()

            self._fill.append(fill)
            key = self._keys[drawn] = Key(drawn)
            key.address = array.data.ptr + 8 * i
        return key

    def _cell(self) -> tuple[Array, np.ndarray, int]:
        place = len(self._fill) % _CELLS
        if place == 0:
            host = np.zeros(_CELLS, np.uint64)
            self._cells.append((self.constant(host), host))
        return *self._cells[-1], place

    def refill(self) -> None:
        """Fill the cells for one replay, on the current stream. CUDA has read the host's when this returns."""
        for fill in self._fill:
            fill()
        cupy = self._cupy
        for i, (array, host) in enumerate(self._cells):
            used = min(_CELLS, len(self._fill) - i * _CELLS)
            cupy.cuda.runtime.memcpyAsync(
                array.data.ptr, host.ctypes.data, 8 * used,
                cupy.cuda.runtime.memcpyHostToDevice, cupy.cuda.get_current_stream().ptr,
            )  # fmt: skip

    # -- products --------------------------------------------------------------------------------

    def cublas(self) -> tuple[Any, int]:
        """cuBLAS's functions, as CuPy names them, and a handle for the current stream: CuPy's refuse to be captured."""
        return _products(), self._workspace_of(self._cupy.cuda.get_current_stream().ptr)

    def _workspace_of(self, stream: int) -> int:
        handle = self._workspaces.get(stream)
        if handle is None:
            gpu, number = self._cupy.cuda.runtime.getDevice(), len(self._workspaces)
            handle = _handles.by_number.get((gpu, number))
            if handle is None:
                handle = _handles.by_number[gpu, number] = self._cupy.cuda.cublas.create()
            memory = self.keep(self._cupy.get_default_memory_pool().malloc(_WORKSPACE))
            _products().use(handle, stream, memory.ptr, _WORKSPACE)
            self._workspaces[stream] = handle
        return handle


class _Products:
    """Functions of the cuBLAS that CuPy has loaded, without CuPy's question whether a stream is captured."""

    def __init__(self) -> None:
        from cupy_backends.cuda.libs import cublas  # pyright: ignore[reportMissingImports]

        library = ctypes.CDLL(cublas.__file__)
        number, many, address = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
        operand, strided = [address, number, number], [address, number, number, many]
        sizes = [address, *[number] * 5]
        self.gemmEx = _checked(
            library.cublasGemmEx, [*sizes, address, *operand, *operand, address, *operand, number, number]
        )
        self.gemmStridedBatchedEx = _checked(
            library.cublasGemmStridedBatchedEx,
            [*sizes, address, *strided, *strided, address, *strided, number, number, number],
        )
        self._set_stream = _checked(library.cublasSetStream_v2, [address, address])
        self._set_workspace = _checked(library.cublasSetWorkspace_v2, [address, address, ctypes.c_size_t])

    def use(self, handle: int, stream: int, workspace: int, size: int) -> None:
        """Let a handle work on a stream with this memory: its own is not reserved for a graph."""
        self._set_stream(handle, stream)  # this takes a former workspace away
        self._set_workspace(handle, workspace, size)


_products = cache(_Products)


def _checked(function: Any, types: list[Any]) -> Callable[..., None]:
    function.argtypes, function.restype = types, ctypes.c_int

    def call(*arguments: Any) -> None:
        if status := function(*arguments):
            raise CaptureError(f"cuBLAS: {function.__name__} of a captured product returned status {status}")

    return call


@cache
def _guard_pinned(cupy: Any) -> None:
    """Copies from the host would pass through memory that CuPy uses again, and so replay what lies there by then."""
    plain = cupy.get_default_pinned_memory_pool().malloc

    def allocate(size: int) -> Any:
        if capturing.now is not None:
            raise CaptureError(NOT_FROM_HOST)
        return plain(size)

    cupy.cuda.set_pinned_memory_allocator(allocate)


NOT_FROM_HOST = (
    "an array of the host is copied to the GPU while a CUDA graph is captured: every replay would see the values of this "
    "step. Make the tensor before the capture, and fill it by copy_ before each replay"
)
