"""CUDA graphs: the work that a stream is given, captured once and launched by one call.

A replay runs the same kernels on the same memory. So inputs are tensors that are filled by `copy_` before a replay,
outputs are overwritten by the next one, and what is captured neither waits for the GPU nor copies from the host. Random
numbers differ from replay to replay: they are those that an eager run would draw. Semantics:
https://pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

import gc
import itertools
import linecache
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any

from ..backend.cuda import capture, library
from ..backend.device import capturing
from ..core.errors import CaptureError
from .devices import synchronize
from .memory import empty_cache
from .streams import Stream, StreamContext

_MODES = {"global": 0, "thread_local": 1, "relaxed": 2}
_PACKAGE = str(Path(__file__).parents[1])

PoolHandle = tuple[int, int]
_pools: weakref.WeakValueDictionary[PoolHandle, _Pool] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


class _Pool:
    """Memory of the graphs that share it; lives as long as they do."""

    def __init__(self) -> None:
        self.memory = capture.new_pool()


def graph_pool_handle() -> PoolHandle:
    """A name for memory that graphs may share: those that are replayed in the order in which they were captured."""
    return 0, next(_numbers)


def is_current_stream_capturing() -> bool:
    """Whether what is given to the current stream becomes part of a graph."""
    if capturing.now is not None:
        return True
    if not library.in_use():
        return False
    stream = library.cupy_and_count()[0].cuda.get_current_stream()
    return stream.ptr != 0 and bool(stream.is_capturing())


class CUDAGraph:
    """A captured piece of work. keep_graph: accepted for PyTorch's sake; `debug_dump` needs no permission here."""

    def __init__(self, keep_graph: bool = False) -> None:
        library.cupy_and_count()  # an error where there is no GPU
        self._capture: capture.Capture | None = None
        self._pool: _Pool | None = None
        self._handle: PoolHandle | None = None
        self._graph: Any = None

    def capture_begin(self, pool: PoolHandle | None = None, capture_error_mode: str = "global") -> None:
        """Capture what the current stream is given from now on. `torch.cuda.graph` does all that belongs to it.

        pool: memory to share, as `graph_pool_handle()` or another graph's `pool()` names it. capture_error_mode: with
        "global", CUDA refuses allocations and the like of other threads meanwhile; with "thread_local" and "relaxed"
        it does not. This thread may allocate and load kernels.
        """
        if capture_error_mode not in _MODES:
            raise RuntimeError(
                f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {capture_error_mode}"
            )
        if self._capture is not None or self._graph is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance."
            )
        if library.cupy_and_count()[0].cuda.get_current_stream().ptr == 0:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them "
                "on the default stream.)"
            )
        self._handle = graph_pool_handle() if pool is None else pool
        self._pool = _pools.get(self._handle) or _Pool()
        _pools[self._handle] = self._pool
        self._capture = capture.Capture(self._pool.memory, _MODES[capture_error_mode])

    def capture_end(self) -> None:
        """End the capture; `replay` runs what was captured, which did not run yet."""
        if self._capture is None or capturing.now is not self._capture:
            raise RuntimeError("capture_end() without capture_begin() in this thread")
        try:
            self._graph = self._capture.end()
        except Exception:
            self.reset()
            raise

    def replay(self) -> None:
        """Run what was captured, on the current stream."""
        if self._graph is None or self._capture is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        self._capture.refill()
        self._graph.launch()

    def changed(self) -> str | None:
        """What the graph relies on and is not as it was captured, such as where an optimizer's state lies; or None."""
        checks = () if self._capture is None else self._capture.checks
        return next((told for check in checks if (told := check())), None)

    def reset(self) -> None:
        """Let go of the graph and its memory; another capture may follow."""
        self._graph = self._capture = self._pool = self._handle = None

    def pool(self) -> PoolHandle:
        """The name of the graph's memory, for captures that share it."""
        if self._handle is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._handle

    def enable_debug_mode(self) -> None:
        """Nothing: `debug_dump` can always be called."""

    def debug_dump(self, debug_path: str) -> None:
        """Write the nodes of the graph to a file, in the language of Graphviz."""
        if self._graph is None:
            raise RuntimeError("Called CUDAGraph::debug_dump without a preceding successful capture.")
        Path(debug_path).write_text(self._graph.debug_dot_str())


class graph:
    """`with torch.cuda.graph(g):` captures its block into `g`, on a stream of its own by default.

    pool, capture_error_mode: see `CUDAGraph.capture_begin`. What cannot be captured is a `CaptureError` that names the
    line. Run the same work a few times before, on another stream: that compiles kernels and makes state.
    """

    _stream: Stream | None = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: PoolHandle | None = None,
        stream: Stream | None = None,
        capture_error_mode: str = "global",
    ) -> None:
        if stream is None:
            kept = graph._stream
            stream = graph._stream = kept if kept is not None and _is_here(kept) else Stream()
        self.cuda_graph, self.capture_stream = cuda_graph, stream
        self._pool, self._mode = pool, capture_error_mode
        self._context = StreamContext(stream)

    def __enter__(self) -> None:
        synchronize()
        gc.collect()
        empty_cache()
        self._context.__enter__()
        try:
            self.cuda_graph.capture_begin(self._pool, self._mode)
        except BaseException:
            self._context.__exit__()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        begun = self.cuda_graph._capture
        try:
            self.cuda_graph.capture_end()
        except Exception as at_end:
            if error is None:
                _undo(begun)
                raise CaptureError(f"the capture of a CUDA graph failed at its end: {at_end}") from at_end
        finally:
            self._context.__exit__(kind, error, trace)
        if error is not None:
            self.cuda_graph.reset()
            _undo(begun)
            told = refusal(error)
            if told is not None:
                raise told from error


def _undo(begun: capture.Capture | None) -> None:
    for forget in () if begun is None else begun.undo:
        forget()


def _is_here(stream: Stream) -> bool:
    return stream.device_index == library.cupy_and_count()[0].cuda.runtime.getDevice()


def refusal(error: BaseException) -> CaptureError | None:
    """What an error says if it comes of capturing, with the program's line; None for another one."""
    cupy, _ = library.cupy_and_count()
    of_cuda = (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError)
    if not isinstance(error, (CaptureError, *of_cuda)) and "captur" not in str(error):
        return None
    libraries = str(Path(cupy.__file__).parents[1])
    what, trace = "a call", error.__traceback__
    while trace is not None:
        file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        if Path(file).is_absolute() and not file.startswith((_PACKAGE, libraries)):
            what = f"`{linecache.getline(file, line).strip()}` at {file}:{line}"
        trace = trace.tb_next
    remedy = "" if isinstance(error, CaptureError) else _REMEDY
    return CaptureError(f"{what} cannot be part of a CUDA graph: {error}{remedy}")


_REMEDY = ". Move it out of what is captured: a graph neither waits for the GPU nor copies from the host"


__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "refusal"]
