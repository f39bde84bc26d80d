"""CuPy and the GPUs of this host, or the error that says what is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ...core.errors import DeviceError
from ...core.upcalls import gpu_count
from ..device import capturing, current_cuda

_CUPY = 14
_INSTALL = "pip install 'ddpgrad[gpu]' (CUDA 12) or 'ddpgrad[gpu13]' (CUDA 13)"

# CuPy and the number of GPUs, once found. What is missing is looked for again at every call.
_found: list[tuple[Any, int]] = []

# By GPU and stream: what comes about after the last copy from host memory.
_copies: dict[tuple[int, int], Any] = {}

used: set[int] = set()
"""The GPUs that this process has computed on. To look at another one would take memory there."""


def missing() -> str | None:
    """Why CUDA cannot be used in this process, with the remedy; None when it can."""
    try:
        cupy_and_count()
    except DeviceError as error:
        return str(error)
    return None


def cupy_and_count() -> tuple[Any, int]:
    """The module `cupy` and the number of GPUs, at least 1; `DeviceError` when there is either not."""
    if not _found:
        cupy = _import()
        _found.append((cupy, _count(cupy)))
    return _found[0]


@gpu_count.register
def _gpu_count() -> int:
    return cupy_and_count()[1]


def _import() -> Any:
    if find_spec("cupy") is None:
        raise DeviceError(f"CUDA is not available: CuPy is not installed; {_INSTALL}")
    try:
        cupy = import_module("cupy")
    except ImportError as error:
        raise DeviceError(f"CUDA is not available: CuPy does not load ({error}); {_INSTALL}") from error
    if int(cupy.__version__.partition(".")[0]) < _CUPY:
        raise DeviceError(
            f"CUDA is not available: expected CuPy {_CUPY} or later, which knows bfloat16, got {cupy.__version__}; "
            f"{_INSTALL} brings it"
        )
    return cupy


def _count(cupy: Any) -> int:
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        if count:
            # The wheels bring CuPy alone: the CUDA libraries are the system's or come as an extra. As an attribute, since
            # the package loads those that came with pip when it is asked for one, and importing the module asks nobody.
            import_module("cupy_backends.cuda.libs").cublas  # noqa: B018
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(
            f"CUDA is not available: CuPy {cupy.__version__} finds no usable GPU ({error}); "
            "`nvidia-smi` shows whether this host has one and which CUDA version its driver can run"
        ) from error
    except ImportError as error:
        raise DeviceError(
            f"CUDA is not available: CuPy {cupy.__version__} does not find CUDA's libraries ({error}); {_INSTALL}"
        ) from error
    if not count:
        raise DeviceError(f"CUDA is not available: CuPy {cupy.__version__} finds no GPU on this host")
    return count


def in_use() -> bool:
    """True when CuPy was loaded already; does not load it."""
    return bool(_found)


def check_index(index: int) -> None:
    """`DeviceError` when there is no GPU of that index."""
    count = cupy_and_count()[1]
    if not 0 <= index < count:
        known = "only cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise DeviceError(f"there is no device cuda:{index}: this host has {known}")


def use(index: int) -> None:
    """Make GPU `index` the one that CuPy computes on in the calling thread."""
    check_index(index)
    cupy = cupy_and_count()[0]
    if cupy.cuda.runtime.getDevice() != index:
        cupy.cuda.Device(index).use()
    used.add(index)


def current_stream() -> Any:
    """CuPy's stream to which this thread's work goes on this rank's current GPU; None where no GPU is in use."""
    if not in_use():
        return None
    use_current()
    return cupy_and_count()[0].cuda.get_current_stream()


@contextlib.contextmanager
def on_stream(stream: Any) -> Iterator[None]:
    """Give what runs here to a stream of CuPy's. Its own `with` goes back to the default stream, whichever was in use."""
    before = cupy_and_count()[0].cuda.get_current_stream()
    stream.use()
    try:
        yield
    finally:
        before.use()


def copied_from_host(array: Any) -> Any:
    """`array`, which the current stream fills from host memory, and which every stream that becomes current later waits for."""
    cuda = cupy_and_count()[0].cuda
    stream = cuda.get_current_stream()
    key = cuda.runtime.getDevice(), stream.ptr
    if key not in _copies:
        _copies[key] = cuda.Event(disable_timing=True)
    stream.record(_copies[key])
    return array


def wait_for_copies(index: int, stream: Any) -> None:
    """Let a stream of GPU `index`, the current one, wait for copies from host memory that other streams make.

    In PyTorch the host waits for such a copy, and no stream has to.
    """
    if capturing.now is None:
        for (gpu, other), event in list(_copies.items()):
            if gpu == index and other != stream.ptr and not event.done:
                stream.wait_event(event)


def use_current() -> None:
    """Make this rank's current GPU the one that CuPy computes on in the calling thread.

    CuPy's own choice belongs to a thread and starts at GPU 0. Ranks may be threads, so every
    way by which a rank comes by a new array on a GPU calls this first.
    """
    use(current_cuda())
