"""What the names in PyTorch's files stand for: types, storages, and the functions that rebuild tensors.

Each function checks what it is given, since a file may say anything.
"""

from __future__ import annotations

import math
import re
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ..backend import dtype as dtypes
from ..backend.device import Device
from ..backend.dtype import DType
from ..core.dispatching import is_told_class
from ..core.errors import DeviceError
from ..core.size import SPARSE, Size, sparse_coo, strided
from ..core.storage import STORAGES, TypedStorage, UntypedStorage
from ..core.tensor import Tensor, wrap
from ..nn.parameter import Parameter
from ..ops.creation.factories import empty_strided
from .pickle_reader import Language, Malformed, attributes, check_hashes, check_key
from .pickle_writer import slots_of


class StorageType:
    """What stands for a class of storages: their element type, None for bytes."""

    def __init__(self, dtype: DType | None) -> None:
        self.dtype = dtype
        self.itemsize = 1 if dtype is None else dtype.itemsize

    def __call__(self, memory: Any) -> TypedStorage | UntypedStorage:
        """The storage of this class whose memory is a raw array of bytes."""
        storage = UntypedStorage._part(memory)
        return storage if self.dtype is None else TypedStorage(dtype=self.dtype, wrap_storage=storage)


def _whole(values: Any) -> bool:
    return all(type(n) is int and n >= 0 for n in values)


def rebuild_tensor(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any = False,
    hooks: Any = None,
    *rest: Any,
) -> Tensor:
    """`torch._utils._rebuild_tensor_v2`: a tensor in the memory of `storage`."""
    if not isinstance(storage, TypedStorage):
        raise Malformed("a tensor without a storage of its type")
    return _in_memory(storage, storage.dtype, offset, size, stride, requires_grad)


def rebuild_typed(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, dtype: Any, *rest: Any
) -> Tensor:
    """`torch._utils._rebuild_tensor_v3`: the same of any type in memory of bytes."""
    if not isinstance(storage, (TypedStorage, UntypedStorage)) or not isinstance(dtype, DType):
        raise Malformed("a tensor without a storage, or without a type")
    return _in_memory(storage, dtype, offset, size, stride, requires_grad)


def _in_memory(
    storage: TypedStorage | UntypedStorage,
    dtype: DType,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
) -> Tensor:
    if not (isinstance(size, tuple) and isinstance(stride, tuple) and len(size) == len(stride) <= 64):
        raise Malformed("a tensor whose size and stride do not fit")
    if not _whole((offset, *size, *stride)) or math.prod(n or 1 for n in size) >= 1 << 58:
        raise Malformed("a tensor with a size, a stride or an offset that cannot be")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    memory, width = storage.untyped()._owner, dtype.itemsize
    if 0 in size:
        offset, stride = 0, (0,) * len(size)
        memory = memory[:0]
    elif (last + 1) * width > memory.nbytes:
        raise Malformed(f"a tensor reaches beyond its storage of {memory.nbytes} bytes")
    steps = tuple(step * width for step in stride)
    if 0 in size:
        array = type(memory)(size, dtype.numpy)
    elif isinstance(memory, np.ndarray):
        array = np.ndarray(size, dtype.numpy, memory, offset * width, steps)
    else:
        array = type(memory)(size, dtype.numpy, memory.data + offset * width, steps)
    out = wrap(array)
    if requires_grad:
        out.requires_grad = True
    return out


def rebuild_meta(dtype: Any, size: Any, stride: Any, requires_grad: Any = False) -> Tensor:
    """`torch._utils._rebuild_meta_tensor_no_storage`: a tensor on meta."""
    if not isinstance(dtype, DType) or not (isinstance(size, tuple) and isinstance(stride, tuple)):
        raise Malformed("a meta tensor without a type, sizes and steps")
    if len(size) != len(stride) or not _whole((*size, *stride)):
        raise Malformed("a meta tensor with a size or a stride that cannot be")
    out = empty_strided(size, stride, dtype=dtype, device="meta")
    return out.requires_grad_() if requires_grad else out


def rebuild_wrapper(
    kind: Any, dtype: Any, size: Any, stride: Any, offset: Any, layout: Any, device: Any, requires_grad: Any
) -> Tensor:
    """`torch._utils._rebuild_wrapper_subclass`: a tensor without memory of its own, of a class that answers for it."""
    if not isinstance(kind, type) or not issubclass(kind, Tensor) or not is_told_class(kind):
        raise Malformed("a tensor without memory of a class that does not answer for it")
    if not isinstance(dtype, DType) or not (isinstance(size, tuple) and isinstance(stride, tuple)):
        raise Malformed("a tensor without a type, sizes and steps")
    form: Any = {"strides": stride, "storage_offset": offset, "dtype": dtype, "device": device}
    return Tensor._make_wrapper_subclass(kind, size, **form, requires_grad=bool(requires_grad))


def _parameter(data: Any, requires_grad: Any = True, hooks: Any = None, state: Any = None) -> Parameter:
    if not isinstance(data, Tensor):
        raise Malformed("a parameter without a tensor")
    out = Parameter(data.detach(), bool(requires_grad))
    if state:
        attributes(out, state)
    return out


def _of_type(function: Any, kind: Any, arguments: Any, state: Any) -> Tensor:
    """A tensor with attributes: `torch._tensor._rebuild_from_type_v2`."""
    known = function in (rebuild_tensor, rebuild_typed, rebuild_meta, rebuild_wrapper, _parameter)
    if not known or not isinstance(kind, type) or not issubclass(kind, Tensor):
        raise Malformed("a tensor of a class that is not known")
    out = function(*arguments)
    if kind not in (Tensor, Parameter) and type(out) is not kind:  # the user's, which the reader has let pass
        out = out.detach().as_subclass(kind).requires_grad_(out.requires_grad)
        if hasattr(kind, "__setstate__"):
            out.__setstate__(state)
            return out
    for part in state if isinstance(state, tuple) else (state,):
        if isinstance(part, dict):
            _set(out, part)
    return out


def _set(tensor: Tensor, state: dict[Any, Any]) -> None:
    """Set attributes; those that the user's class has itself are slots."""
    kinds = type(tensor).__mro__[: type(tensor).__mro__.index(Tensor)]
    slots = {name for kind in kinds for name in slots_of(kind)}
    attributes(tensor, {name: value for name, value in state.items() if name not in slots})
    for name in slots & state.keys():
        setattr(tensor, name, state[name])


def _sparse(layout: Any, parts: Any) -> Tensor:
    """`torch._utils._rebuild_sparse_tensor`: of indices, values, size, and of coordinates whether they are coalesced."""
    tensors = 2 if layout is sparse_coo else 3
    sound = type(parts) is tuple and len(parts) in (4, tensors + 1) and type(parts[tensors]) is Size
    known = layout in SPARSE.values()
    if not known or not sound or not all(isinstance(part, Tensor) for part in parts[:tensors]):
        raise Malformed("a sparse tensor that is not made of indices, values and a size")
    from ..sparse.compressed import sparse_compressed_tensor  # here, as few files hold some
    from ..sparse.construct import sparse_coo_tensor

    try:
        if layout is not sparse_coo:
            return sparse_compressed_tensor(*parts, layout=layout)
        return sparse_coo_tensor(*parts[:3], is_coalesced=parts[3] is True if len(parts) > 3 else None)
    except (RuntimeError, NotImplementedError) as error:
        raise Malformed(f"a sparse tensor whose parts do not fit: {error}") from None


def _layout(name: Any) -> Any:
    """`torch.serialization._get_layout`."""
    for layout in (*SPARSE.values(), strided):
        if name == repr(layout):
            return layout
    raise Malformed("a layout that is not known")


def _no_form(*_: Any) -> Any:
    raise Malformed("it holds a quantized or nested tensor, which has no form here")


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise Malformed("bytes that are not written as text")
    return text.encode("latin1")


def _bytearray(data: Any = b"", *encoding: Any) -> bytearray:
    return bytearray(data if type(data) is bytes else _encoded(data, *encoding))


def _set_of(kind: type) -> Callable[..., Any]:
    def make(items: Any = ()) -> Any:
        if type(items) not in (list, tuple):
            raise Malformed(f"a {kind.__name__} that is not made of a list")
        for item in items:
            check_key(item)
        check_hashes(items)
        return kind(items)

    return make


def _ordered(pairs: Any = ()) -> OrderedDict[Any, Any]:
    items = [(key, value) for key, value in pairs]
    for key, _ in items:
        check_key(key)
    check_hashes([key for key, _ in items])
    return OrderedDict(items)


def _counter(counts: Any = None) -> Counter[Any]:
    if counts is not None and type(counts) is not dict:
        raise Malformed("a Counter that is not made of a dict")
    return Counter(counts or {})


def _complex(real: Any, imag: Any) -> complex:
    if type(real) is not float or type(imag) is not float:
        raise Malformed("a complex number whose parts are no floats")
    return complex(real, imag)


def _size(sizes: Any = ()) -> Size:
    if type(sizes) not in (tuple, list) or not all(type(n) is int for n in sizes):
        raise Malformed("a Size that is not made of ints")
    return Size(sizes)


def _device(kind: Any, index: Any = None) -> Device:
    if type(kind) is not str or not (index is None or type(index) is int):
        raise Malformed("a device that is no name and number")
    try:
        return Device(kind, index)
    except DeviceError as error:
        raise Malformed(str(error)) from None


# -- NumPy's ---------------------------------------------------------------------------------

_SHORT_NAME = re.compile(r"[biufc]\d{1,2}|b1")


def _numpy_dtype(name: Any, *_: Any) -> np.dtype[Any]:
    if name is ml_dtypes.bfloat16:
        return np.dtype(name)
    if type(name) is not str or not _SHORT_NAME.fullmatch(name):
        raise Malformed("an array of something that is no number")
    return np.dtype(name)


def _empty_array(kind: Any, shape: Any, code: Any) -> np.ndarray:
    if kind is not np.ndarray or shape != (0,):
        raise Malformed("an array that does not begin empty")
    return np.empty(0, np.uint8)


def _numpy_scalar(dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, np.dtype) or type(data) is not bytes or len(data) != dtype.itemsize:
        raise Malformed("a scalar that is no number")
    return np.frombuffer(data, dtype)[0]


def _build(target: Any, state: Any) -> bool:
    if type(target) is OrderedDict:
        attributes(target, state)
    elif isinstance(target, np.dtype):
        if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", "|", "="):
            raise Malformed("an array of big-endian numbers, or of fields, which has no form here")
    elif type(target) is np.ndarray:
        version, shape, dtype, fortran, data = state
        sound = type(shape) is tuple and len(shape) <= 64 and _whole(shape) and isinstance(dtype, np.dtype)
        if not sound or type(data) is not bytes or math.prod(shape) * dtype.itemsize != len(data):
            raise Malformed("an array whose bytes do not fit its shape")
        target.__setstate__((version, shape, dtype, bool(fortran), data))  # type: ignore[arg-type]
    else:
        return False
    return True


def _names() -> tuple[dict[str, Any], dict[int, Callable[..., Any]]]:
    functions: dict[str, Callable[..., Any]] = {
        "torch._utils._rebuild_tensor": rebuild_tensor,
        "torch._utils._rebuild_tensor_v2": rebuild_tensor,
        "torch._utils._rebuild_tensor_v3": rebuild_typed,
        "torch._utils._rebuild_meta_tensor_no_storage": rebuild_meta,
        "torch._utils._rebuild_wrapper_subclass": rebuild_wrapper,
        "torch._utils._rebuild_parameter": _parameter,
        "torch._utils._rebuild_parameter_with_state": _parameter,
        "torch._tensor._rebuild_from_type_v2": _of_type,
        "torch._utils._rebuild_sparse_tensor": _sparse,
        "torch.serialization._get_layout": _layout,
        "_codecs.encode": _encoded,
    }
    for name in ("qtensor", "nested_tensor"):
        functions[f"torch._utils._rebuild_{name}"] = _no_form
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        functions[f"{module}._reconstruct"] = _empty_array
        functions[f"{module}.scalar"] = _numpy_scalar
    made: dict[str, tuple[Any, Callable[..., Any]]] = {
        "collections.OrderedDict": (OrderedDict, _ordered),
        "collections.Counter": (Counter, _counter),
        "builtins.set": (set, _set_of(set)),
        "builtins.frozenset": (frozenset, _set_of(frozenset)),
        "builtins.bytearray": (bytearray, _bytearray),
        "builtins.complex": (complex, _complex),
        "torch.Size": (Size, _size),
        "torch.device": (Device, _device),
        "torch.nn.parameter.Parameter": (Parameter, _parameter),
        "numpy.dtype": (np.dtype, _numpy_dtype),
    }
    names: dict[str, Any] = {
        "torch.Tensor": Tensor,
        "numpy.ndarray": np.ndarray,
        "ml_dtypes.bfloat16": ml_dtypes.bfloat16,
    }
    names |= functions | {name: value for name, (value, _) in made.items()}
    names |= {f"torch.{name}": value for name, value in vars(dtypes).items() if isinstance(value, DType)}
    names |= {f"torch.{dtype.name}": dtype for dtype in dtypes.ALL}
    names |= {f"torch.{word}Storage": StorageType(dtype) for word, dtype in STORAGES.items()}
    names["torch.storage.UntypedStorage"] = StorageType(None)
    calls = {id(f): f for f in functions.values()} | {id(value): call for value, call in made.values()}
    return names, calls


LANGUAGE = Language(*_names(), _build)
"""All that a file may name by itself."""
