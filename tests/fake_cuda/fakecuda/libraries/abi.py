"""C functions written in Python: arguments as numbers, arrays as views of the memory that an address names."""

import ctypes
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

# The letters of a signature, as the functions are declared in CUDA's headers.
_TYPES: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int,
    "l": ctypes.c_int64,
    "z": ctypes.c_size_t,
    "b": ctypes.c_byte,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
}
# By the first letter of a function's name in BLAS and LAPACK.
KINDS = {
    "S": np.dtype(np.float32),
    "D": np.dtype(np.float64),
    "C": np.dtype(np.complex64),
    "Z": np.dtype(np.complex128),
}
# By cudaDataType.
DATA_TYPES = {
    0: np.dtype(np.float32), 1: np.dtype(np.float64), 2: np.dtype(np.float16), 3: np.dtype(np.int8), 4: np.dtype(np.complex64),
    5: np.dtype(np.complex128), 10: np.dtype(np.int32), 14: np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip

# name -> the C function, which must stay referenced.
FUNCTIONS: dict[str, Any] = {}
_machine: list[ctypes.CDLL] = []


class Status(Exception):
    """Ends a function with a status and says why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def use(machine: ctypes.CDLL) -> None:
    """The machine whose memory and devices the functions work on."""
    _machine[:] = [machine]


def current_device() -> int:
    return _machine[0].fakecuda_current_device()


def count_product() -> None:
    _machine[0].fakecuda_count_product()


def refuse(reason: str) -> None:
    """Say why a call is refused, where CuPy's exceptions show it."""
    _machine[0].fakecuda_refuse(reason.encode())


def function(
    name: str, signature: str, failed: int = 1, stream_of: Callable[..., int] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function of Python be the C function `name`; None is status 0, an exception `failed`.

    stream_of: of its arguments makes the stream that its work is given to, or raises.
    """

    def declare(body: Callable[..., Any]) -> Callable[..., Any]:
        def call_again(given: list[Any]) -> int:
            try:
                return body(*given) or 0
            except Exception:
                traceback.print_exc()
                return failed

        def call(*arguments: Any) -> int:
            try:
                given = [0 if argument is None else argument for argument in arguments]
                if stream_of is not None and captured(stream := stream_of(*given)):
                    return give(stream, partial(call_again, given))
                return body(*given) or 0
            except Status as status:
                refuse(f"{name}: {status}")
                return status.code
            except Exception:
                traceback.print_exc()
                refuse(f"{name} of the stand-in failed")
                return failed

        prototype = ctypes.CFUNCTYPE(ctypes.c_int, *(_TYPES[letter] for letter in signature))
        FUNCTIONS[name] = prototype(call)
        return body

    return declare


def captured(stream: int) -> bool:
    """Whether what the stream is given becomes part of a graph."""
    return bool(_machine[0].fakecuda_captured(ctypes.c_void_p(stream)))


def finish(stream: int) -> None:
    """Let a stream do what it was given before: a library's work here is done at once."""
    if status := _machine[0].fakecuda_finish(ctypes.c_void_p(stream)):
        raise Status(status, "what its stream was given before failed")


def give(stream: int, work: Callable[[], int]) -> int:
    """Let a graph's launches do what a captured stream is given."""
    node = _NODE(work)
    _nodes.append(node)
    return _machine[0].fakecuda_give(ctypes.c_void_p(stream), node)


_NODE = ctypes.CFUNCTYPE(ctypes.c_int)
_nodes: list[Any] = []  # a graph does not say when it ends


def view(
    address: int, dtype: Any, shape: Sequence[int], steps: Sequence[int] | None = None, who: str = "a library"
) -> Array:
    """The array of device memory at an address; steps: elements from one index to the next, by default as in C."""
    dtype = np.dtype(dtype)
    if steps is None:
        steps = [int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape))]
    if 0 in shape:
        return np.empty(shape, dtype)
    nbytes = (1 + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))) * dtype.itemsize
    if _machine[0].fakecuda_check(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), who.encode()):
        raise Status(7, f"{who}: an array of {nbytes} bytes at {address:#x} is not in a GPU's memory")
    memory = (ctypes.c_char * nbytes).from_address(address)
    return np.ndarray(tuple(shape), dtype, memory, 0, tuple(step * dtype.itemsize for step in steps))


def matrix(address: int, dtype: Any, rows: int, columns: int, lead: int) -> Array:
    """The matrix at an address whose columns begin `lead` elements apart."""
    if lead < max(rows, 1):
        raise Status(7, f"a leading dimension of {lead} for {rows} rows")
    return view(address, dtype, (rows, columns), (1, lead))


def addresses(address: int, count: int) -> list[int]:
    """The addresses in an array of device memory."""
    return [int(a) for a in view(address, np.uintp, (count,))]


def scalar(address: int, dtype: Any) -> Any:
    """The number at an address in host or device memory."""
    dtype = np.dtype(dtype)
    return np.frombuffer((ctypes.c_char * dtype.itemsize).from_address(address), dtype)[0]


def write(address: int, value: Any, dtype: Any = np.int32) -> None:
    """Put one number at an address in host or device memory."""
    dtype = np.dtype(dtype)
    np.frombuffer((ctypes.c_char * dtype.itemsize).from_address(address), dtype)[...] = value


class Handles:
    """The handles of a library: each belongs to the device on which it was made, and has a stream."""

    def __init__(self, name: str, invalid: int, refuses_captures: bool = True) -> None:
        self._name, self._invalid, self._refuses_captures = name, invalid, refuses_captures
        self._known: dict[int, list[int]] = {}  # device and stream
        self._next = 0x10

    def create(self, out: int) -> None:
        self._next += 0x10
        self._known[self._next] = [current_device(), 0]
        write(out, self._next, np.uintp)

    def destroy(self, handle: int) -> None:
        self.of_this_device(handle)
        del self._known[handle]

    def set_stream(self, handle: int, stream: int) -> None:
        self.of_this_device(handle)[1] = stream

    def get_stream(self, handle: int, out: int) -> None:
        write(out, self.of_this_device(handle)[1], np.uintp)

    def of_this_device(self, handle: int) -> list[int]:
        """What is known of a handle; refused where it is another device's."""
        if handle not in self._known:
            raise Status(self._invalid, f"{self._name} was given a handle that does not exist")
        device, stream = self._known[handle]
        if self._refuses_captures and captured(stream):
            raise Status(
                self._invalid, f"{self._name} on a stream that is captured is not part of the stand-in"
            )
        if device != current_device():
            raise Status(
                self._invalid,
                f"{self._name}'s handle of device {device} is used while device {current_device()} is current",
            )
        finish(stream)
        return self._known[handle]
