"""Which function computes what where: device kind -> backend, kernel name -> function.

A kernel works on raw arrays. It is found by name, on first use, in this order:

1. the backend's families (`cpu/`, `cuda/`), where a fast or native version lives;
2. the op's portable body, written over the same vocabulary (see `ops/dispatch/declare.py`), or the
   elementary kernel of that name (`elementary/`).

A kernel of the first kind may return `NotImplemented` for inputs that it does not
handle; the portable body then computes them, unless the module lists the kernel in
`COMPLETE`. A name found in neither is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import KernelMissingError
from ..core.upcalls import declare_all_ops
from .device import Device
from .layout import placing, use

Kernel = Callable[..., Any]


class SparseArray:
    """The base of raw arrays that hold some of their elements only (`sparse/coo.py`, which is loaded when there is one)."""

    __slots__ = ()
    layout: str
    values: Any
    T: Any

    @property
    def called(self) -> str:
        """The layout as messages name it: "Sparse" for coordinates, "SparseCsr" and its like for others."""
        return "Sparse" if self.layout == "sparse_coo" else f"Sparse{self.layout[-3:].title()}"

    def parts(self) -> dict[str, Any]:
        """The ordinary arrays that this one consists of, under the names of the methods that give them."""
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """What the operators give under NumPy's names, the other operand being of NumPy or of CuPy."""
        raise NotImplementedError

    def coo(self) -> Any:
        """The same in coordinates."""
        raise NotImplementedError

    def added_to(self, dense: Any, out: Any = None, sign: int = 1) -> Any:
        """dense + sign * self: a new array, or `out`, which then is `dense`."""
        raise NotImplementedError

    def coalesce(self) -> Any:
        """The same with every place once, in order."""
        raise NotImplementedError


class Unsupported(NotImplementedError, AttributeError):
    """What is asked for is not defined for sparse tensors. An AttributeError too, so that `hasattr` can ask."""


def stored(array: Any, coalesce: bool = False) -> Any:
    """The values of a sparse array, in its own memory, after it was coalesced if asked; another array as it is."""
    if not isinstance(array, SparseArray):
        return array
    if coalesce:
        array[...] = array.coalesce()  # type: ignore[index]
    return array.values


# Portable bodies by name, filled by the op declarations: body(F, *args) on arrays.
_bodies: dict[str, Kernel] = {}


def register_body(name: str, body: Kernel) -> None:
    """Give the kernel `name` a portable body, written over the vocabulary F."""
    _bodies[name] = body


def body_of(name: str) -> Kernel | None:
    """The portable body of the kernel `name`, if it has one."""
    if name not in _bodies:
        declare_all_ops()
    return _bodies.get(name)


_PUBLIC_FUNCTION = re.compile(r"\ndef ([a-z]\w*)\(")


def kernels_in(package: str, modules: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Modules of a package, by their full names, with the public functions of each, all of which are kernels.

    They are read from the source, since importing a module may load a compiler.
    """
    folder = Path(str(import_module(package).__file__)).parent
    return {
        f"{package}.{module}": tuple(_PUBLIC_FUNCTION.findall((folder / f"{module}.py").read_text("utf-8")))
        for module in modules
    }


class Backend:
    """The kernels of one device kind as attributes: the array vocabulary of gradient rules.

    kind: of device. elementary: functions over the array library. families: for
    each module of fast kernels, loaded on first use, the names that it defines.
    wrap: what every kernel is wrapped in, if anything. library: the array library, `xp`.
    """

    places = True  # results of its kernels are yet to be put into PyTorch's order of memory
    joins_rows = True  # many dimensions may be joined to one without copies, for products

    def __init__(
        self,
        kind: str,
        array_type: type,
        elementary: Mapping[str, Kernel],
        families: Mapping[str, tuple[str, ...]],
        device_of: Callable[[Any], Device],
        wrap: Callable[[Kernel], Kernel] | None = None,
        library: Any = np,
    ) -> None:
        self.kind = kind
        self.array_type = array_type
        self.device_of = device_of
        self._elementary = elementary
        self._wrap = wrap
        self.library = library
        self._families = {name: module for module, names in families.items() for name in names}

    def __getattr__(self, name: str) -> Kernel:
        if name.startswith("_"):
            raise AttributeError(name)
        kernel = self.find(name)
        setattr(self, name, kernel)
        return kernel

    def find(self, name: str) -> Kernel:
        """The function that computes `name` on this device; `KernelMissingError` if there is none."""
        kernel = self._find(name)
        return kernel if self._wrap is None else self._wrap(kernel)

    def _find(self, name: str) -> Kernel:
        module = import_module(self._families[name]) if name in self._families else None
        if module is not None and name in getattr(module, "COMPLETE", ()):
            return getattr(module, name)
        if name not in _bodies and name not in self._elementary:
            declare_all_ops()
        body = _bodies.get(name)
        portable = self._elementary.get(name) if body is None else partial(body, self)
        if module is not None:
            native = getattr(module, name)
            if portable is None:
                return native
            kernel = _with_fallback(native, portable)
            if name in getattr(module, "WRITES", ()):
                kernel.__dict__["writes"] = native
            return kernel
        if portable is None:
            raise KernelMissingError(
                f"no kernel '{name}' for device '{self.kind}': neither ddpgrad/backend/{self.kind} nor an op's "
                f"portable body defines it. Backends loaded: {', '.join(sorted(b.kind for b in loaded()))}"
            )
        return portable


def _with_fallback(native: Kernel, portable: Kernel) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        out = native(*args, **kwargs)
        return portable(*args, **kwargs) if out is NotImplemented else out

    kernel.__name__ = native.__name__
    return kernel


_by_kind: dict[str, Backend] = {}
_by_array_type: dict[type, Backend] = {}


def backend_of(kind: str) -> Backend:
    """The backend of a device kind, loaded on first use; `DeviceError` when it cannot run here."""
    backend = _by_kind.get(kind)
    if backend is None:
        backend = import_module(f"{__package__}.{kind}").load()
        _by_kind[kind] = backend
        _by_array_type[backend.array_type] = backend
    return backend


def add_backend(backend: Backend) -> None:
    """Let a backend compute on its class of arrays, beside the one that is the backend of its device kind."""
    _by_array_type[backend.array_type] = backend


def loaded() -> list[Backend]:
    """The backends in use so far."""
    return list(_by_kind.values())


def backend_for(array: Any) -> Backend:
    """The backend that a raw array belongs to."""
    try:
        return _by_array_type[array.__class__]
    except KeyError:
        pass
    found = _of_class(array.__class__)
    if found is not None:
        return found
    if isinstance(array, (np.ndarray, np.generic)):  # of a backend that was not used yet, or a scalar
        return backend_of("cpu")
    if hasattr(array, "device_kind"):  # of a backend that was not used yet, out of a pickle
        return backend_of(array.device_kind)
    raise TypeError(f"expected an array of a loaded backend, got {type(array).__name__}")


def is_on_gpu(array: Any) -> bool:
    """Whether `array` is a GPU's own, and not of a class that consists of others."""
    backend = backend_for(array)
    return backend.kind == "cuda" and backend is _by_kind.get("cuda")


def _of_class(kind: type) -> Backend | None:
    """The backend of a class of arrays, which may be that of a class that it is made of, such as numpy.ndarray of numpy.memmap."""
    found = next((_by_array_type[base] for base in kind.__mro__ if base in _by_array_type), None)
    if found is not None:
        _by_array_type[kind] = found
    return found


def alike(arrays: Iterable[Any]) -> list[tuple[Device, list[Any]]]:
    """Raw arrays that one kernel may take together, in their order: those of one backend and device, which is told."""
    found: dict[tuple[int, Device], list[Any]] = {}
    for array in arrays:
        backend = backend_for(array)
        found.setdefault((id(backend), backend.device_of(array)), []).append(array)
    return [(device, together) for (_, device), together in found.items()]


class KernelByArray(dict[type, Kernel]):
    """One op's kernels by the class of the array: the dispatch of the hot path."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name
        _tables.append(self)

    def __missing__(self, array_type: type) -> Kernel:
        backend = _of_class(array_type) or backend_of(getattr(array_type, "device_kind", "cpu"))
        found = backend.find(self.name)
        kernel = self[array_type] = placing(self.name, found) if backend.places else found
        return kernel


_tables: list[KernelByArray] = []


def _look_up_again() -> None:
    for table in _tables:
        table.clear()


use.started = _look_up_again


def constant_on(array: Any, device: Device) -> Any:
    """A host array on `device`: a number or list that a program wrote down, which a captured graph keeps."""
    if device.type != "cuda":
        return to_device(array, device)
    backend = backend_of("cuda")
    return backend.on(device, backend.asarray, array)


def to_device(array: Any, device: Device) -> Any:
    """The raw array on `device`: itself when it is there already."""
    source = backend_for(array)
    if source.device_of(array) == device:
        return array
    if source is not _by_kind.get(source.kind):  # of its own class, which consists of others
        return source.move(array, device, source.device_of(array))
    if source.kind == device.type == "cuda":
        return source.to_other_gpu(array, device)
    host = array if source.kind == "cpu" or device.type == "meta" else source.to_host(array)
    return host if device.type == "cpu" else backend_of(device.type).from_host(host, device)
