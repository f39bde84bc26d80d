"""Values of both libraries beside each other: PyTorch's functions and arguments as ddpgrad's, and results compared."""

import dataclasses
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import ddpgrad

NAMESPACES = ("", "Tensor", "nn.functional", "linalg", "special", "fft", "signal.windows", "sparse", "masked")


class Different(Exception):
    """ddpgrad and PyTorch disagree."""


class Lacking(Exception):
    """ddpgrad has not got something: a name, or a kind of argument that it says it does not take."""


def label(entry: Any) -> str:
    """An entry's name with its variant."""
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


def lookup(root: Any, path: str) -> Any:
    """The attribute at a dotted path, or None."""
    for part in path.split(".") if path else ():
        root = getattr(root, part, None)
        if root is None:
            return None
    return root


def _paths() -> dict[int, list[str]]:
    """Every public function of PyTorch's, by identity: where it is found."""
    found: dict[int, list[str]] = {}
    for space in NAMESPACES:
        module = lookup(torch, space)
        for name in dir(module):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = getattr(module, name, None)
            if callable(value):
                found.setdefault(id(value), []).append(f"{space}.{name}" if space else name)
    return found


PATHS = _paths()


def ours(function: Any) -> Any:
    """ddpgrad's counterpart of a function of PyTorch's, or of a test's lambda over `torch`; None if missing."""
    paths = PATHS.get(id(function))
    if paths is not None:
        return next((f for p in paths if (f := lookup(ddpgrad, p)) is not None), None)
    code = getattr(function, "__code__", None)
    if code is None or not function.__module__.startswith("torch.testing"):
        return None
    cells = tuple(types.CellType(_cell(c.cell_contents)) for c in function.__closure__ or ())
    spaces = {"torch": ddpgrad, "F": ddpgrad.nn.functional}
    return types.FunctionType(code, {**function.__globals__, **spaces}, None, function.__defaults__, cells)


def _cell(value: Any) -> Any:
    return (ours(value) or value) if callable(value) else value


def to_numpy(t: torch.Tensor) -> np.ndarray:
    """A copy of the elements, in the memory order that the tensor has."""
    t = t.detach().resolve_conj().resolve_neg()
    if t._is_zerotensor():
        t = torch.zeros(t.shape, dtype=t.dtype)
    if t.dtype is torch.bfloat16:
        return t.float().numpy().astype(ddpgrad.bfloat16.numpy)
    return np.array(t.numpy(), order="K", copy=True)


def _with_its_memory(t: torch.Tensor) -> np.ndarray:
    """A copy of the tensor within a copy of the memory that it is a view of, with the same strides."""
    if t.is_conj() or t.is_neg() or t._is_zerotensor() or not t.numel():
        return to_numpy(t)
    memory = to_numpy(torch.empty(0, dtype=t.dtype).set_(t.untyped_storage()))
    size = memory.itemsize
    steps = [step * size for step in t.stride()]
    return np.ndarray(tuple(t.shape), memory.dtype, memory, t.storage_offset() * size, steps)


class Converter:
    """Turns PyTorch's arguments into ddpgrad's; a tensor that is met twice becomes one tensor."""

    def __init__(self) -> None:
        self.seen: dict[int, Any] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.seen:
                if value.layout is torch.sparse_csr:
                    parts = (value.crow_indices(), value.col_indices(), value.detach().values())
                    made = ddpgrad.sparse_csr_tensor(*(self(part) for part in parts), self(value.shape))
                elif value.layout is not torch.strided:
                    raise Lacking(f"layout {value.layout}")
                else:
                    made = ddpgrad.from_numpy(_with_its_memory(value))
                if isinstance(value, torch.nn.Parameter):
                    made = ddpgrad.nn.Parameter(made, requires_grad=False)
                self.seen[id(value)] = made.requires_grad_(value.requires_grad)
            return self.seen[id(value)]
        if isinstance(value, torch.Size):
            return ddpgrad.Size(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self(v) for v in value)
        if isinstance(value, dict):
            return {k: self(v) for k, v in value.items()}
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            name = str(value).removeprefix("torch.")
            if not hasattr(ddpgrad, name):
                raise Lacking(f"torch.{name}")
            return getattr(ddpgrad, name)
        if isinstance(value, torch.device):
            return ddpgrad.device(str(value))
        if isinstance(value, torch.Generator):
            return ddpgrad.Generator().manual_seed(value.initial_seed())
        if callable(value) and id(value) in PATHS:
            return ours(value)
        if isinstance(value, torch.nn.Module):
            return getattr(ddpgrad.nn, type(value).__name__)()
        if dataclasses.is_dataclass(value):  # options
            kind = getattr(ddpgrad.nn, type(value).__name__)
            return kind(**{f.name: self(getattr(value, f.name)) for f in dataclasses.fields(value)})
        return value


def leaves(value: Any, kind: type) -> Iterator[Any]:
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from leaves(v, kind)
    elif isinstance(value, dict):
        for v in value.values():
            yield from leaves(v, kind)


def compare(what: str, got: Any, want: Any, tolerance: float) -> None:
    """`Different` unless both are the same structure, dtype and shape, and equal to `tolerance`."""
    if isinstance(want, (list, tuple)) and not isinstance(want, torch.Size):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            raise Different(f"{what}: {type(got).__name__} in place of {len(want)} results")
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            compare(f"{what}[{i}]", g, w, tolerance)
    elif isinstance(want, torch.Tensor):
        if not isinstance(got, ddpgrad.Tensor):
            raise Different(f"{what}: {type(got).__name__} in place of a Tensor")
        if str(got.dtype) != str(want.dtype):
            raise Different(f"{what}: {got.dtype}, expected {want.dtype}")
        if tuple(got.shape) != tuple(want.shape):
            raise Different(f"{what}: shape {list(got.shape)}, expected {list(want.shape)}")
        if what == "result" and str(got.layout) != str(want.layout):
            raise Different(f"{what}: layout {got.layout}, expected {want.layout}")
        got, want = got.to_dense(), want.to_dense()
        close(what, got.detach().numpy(), to_numpy(want), tolerance)
    elif isinstance(want, dict):
        compare(f"names of {what}", list(got), list(want), tolerance)
        for name, value in want.items():
            compare(f"{what}[{name!r}]", got[name], value, tolerance)
    elif isinstance(want, np.ndarray):
        close(what, got, want, tolerance)
    elif isinstance(want, (torch.dtype, torch.Size, torch.device)):
        if str(got) != str(want):
            raise Different(f"{what}: {got!r}, expected {want!r}")
    elif isinstance(want, (float, complex)):
        close(what, np.asarray(got), np.asarray(want), tolerance)
    elif got != want:
        raise Different(f"{what}: {got!r}, expected {want!r}")


def close(what: str, got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    """`Different` where arrays differ by more than `tolerance` times the largest finite element."""
    if want.dtype.kind not in "fcV":
        if not np.array_equal(got, want):
            raise Different(f"{what}: {_first(got != want, got, want)}")
        return
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    got, want = got.astype(wide), want.astype(wide)
    finite = np.isfinite(want)
    # Samples are of the order of 1: much smaller elements are what is left of larger ones.
    scale = max(np.abs(want[finite]).max(initial=0.0), 1e-2)
    with np.errstate(all="ignore"):
        same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= tolerance * scale)
    if not same.all():
        raise Different(f"{what}: {_first(~same, got, want)}")


def _first(wrong: np.ndarray, got: np.ndarray, want: np.ndarray) -> str:
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{got[place]} at {list(place)}, expected {want[place]}"
