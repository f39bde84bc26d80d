"""Exchange with other libraries and processes: pickles, copies, DLPack, shared memory; and PyTorch's typed tensors."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ...backend import dtype as dtypes
from ...backend.device import CPU, Device
from ...backend.registry import SparseArray, to_device
from ...core.dispatching import DisableTorchDispatch
from ...core.overrides import DisableTorchFunction
from ...core.size import SPARSE, Layout, sparse_coo, sparse_csr, strided
from ...core.tensor import Tensor, wrap
from ..shape.strided import alias
from . import data, factories

if TYPE_CHECKING:
    from ...core.storage import TypedStorage, UntypedStorage

_CUDA_DEVICE, _CPU_DEVICE = 2, 1  # DLPack's numbers


# -- copies and pickles -----------------------------------------------------------------------


def rebuild(array: Any, kind: type, requires_grad: bool, device: str, attributes: dict[str, Any]) -> Tensor:
    """The tensor that a pickle describes."""
    out = wrap(factories.finish(array, device)._array, kind)
    out._requires_grad = requires_grad
    out.__dict__.update(attributes)
    return out


def reduce_ex(self: Tensor, protocol: Any) -> Any:
    """Array, device, whether it requires grad, and attributes. Load no pickles, these or others, of people you do not trust."""
    array = to_device(self._array, CPU) if _is_sparse(self) else self._array
    if not _is_sparse(self) and not self.is_meta:  # a subclass may have a `numpy` of its own
        array = np.ascontiguousarray(Tensor.numpy(self, force=True)).reshape(tuple(self.shape))
    return rebuild, (array, type(self), self._requires_grad, str(self.device), dict(self.__dict__))


def deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """A leaf with memory of its own, and a copy of its gradient; what shared memory shares that of the copies."""
    if self._grad_fn is not None:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment"
        )
    if id(self) in memo:
        return memo[id(self)]
    from ...core.storage import copied

    array, versions = copied(self._array, memo)
    out = wrap(array, type(self))
    out._versions = versions
    memo[id(self)] = out
    out._requires_grad = self._requires_grad
    out.__dict__.update(copy.deepcopy(dict(self.__dict__), memo))
    if self._grad is not None:
        out._grad = copy.deepcopy(self._grad, memo)
    return out


def shallow_copy(self: Tensor) -> Tensor:
    """A leaf on the same memory."""
    out = wrap(self._array, type(self))
    out._versions, out._requires_grad = self._versions, self._requires_grad
    out.__dict__.update(self.__dict__)
    return out


def as_subclass(self: Tensor, cls: type) -> Tensor:
    """The same memory and history as an instance of `cls`, a subclass of Tensor."""
    if not issubclass(cls, Tensor):
        raise RuntimeError("Creating a Tensor subclass from a class that does not inherit from Tensor")
    with DisableTorchFunction(), DisableTorchDispatch():
        out = self.detach() if _is_sparse(self) else alias(self)
    try:
        out.__class__ = cls
    except TypeError:  # a class with slots of its own
        made = wrap(out._array, cls)
        for slot in ("_versions", "_view", "_requires_grad", "_grad_fn", "_output_nr"):
            setattr(made, slot, getattr(out, slot))
        return made
    return out


# -- NumPy -------------------------------------------------------------------------------------


def as_array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    """What `numpy.asarray(tensor)` gives: the memory itself where the dtype stays and no copy is asked for."""
    array = self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)
    return array.copy() if copy else array


def array_wrap(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    """What NumPy's functions return for tensors: a tensor where there is one of that dtype."""
    return wrap(np.asarray(array)) if array.dtype in dtypes.BY_NUMPY else array


def tolist(self: Tensor) -> Any:
    """Nested lists of Python numbers."""
    array = self._array
    return (array.astype(np.float32) if array.dtype in dtypes.NARROW else array).tolist()


def contains(self: Tensor, value: Any) -> bool:
    """`value in tensor`: whether any element equals it."""
    if not isinstance(value, (Tensor, bool, int, float, complex, np.generic)):
        raise RuntimeError(
            f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(value)}."
        )
    return bool(self.__eq__(value).any())


# -- other libraries --------------------------------------------------------------------------


def dlpack(
    self: Tensor, *, stream: Any = -1, max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None, copy: bool | None = None,
) -> Any:  # fmt: skip
    """A capsule with which another library can use the memory. stream: of a GPU, to be waited for; -1: none.

    max_version: the newest form that the other library reads. copy: True for memory of its own.
    """
    from .dlpack import export  # here, as few programs do

    return export(self, stream, max_version, dl_device, copy)


def dlpack_device(self: Tensor) -> tuple[int, int]:
    """(kind, index) of the device, by DLPack's numbers."""
    return (_CUDA_DEVICE, self.device.index or 0) if self.is_cuda else (_CPU_DEVICE, 0)


def cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """What Numba, CuPy and others read to use the memory of a tensor on a GPU."""
    if not self.is_cuda:
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()}. If CUDA data is required use "
            "tensor.cuda() to copy tensor to device memory."
        )
    if self._requires_grad:
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad. Use detach().")
    return self._array.__cuda_array_interface__


# -- other processes --------------------------------------------------------------------------


def is_shared(self: Tensor) -> bool:
    """True when other processes can be given the memory itself: on a GPU, or after `share_memory_`."""
    if self.is_cuda:
        return True
    from .shared import memory_of  # here and below, as few programs share memory

    return memory_of(self) is not None


def share_memory_(self: Tensor) -> Tensor:
    """Move the elements into memory that other processes of this host share, once they are forked or sent the tensor."""
    from .shared import share

    return share(self)


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in page-locked host memory, from which a GPU copies faster; the tensor itself if it lies there.

    DeviceError where there is no GPU. device: accepted for PyTorch's sake; the memory serves all GPUs.
    """
    if not self.is_cpu:
        raise RuntimeError(f"cannot pin '{self.type()}': only dense CPU tensors can be pinned")
    from ...backend.cuda import pinned  # here and below, as few programs pin

    return self if pinned.is_page_locked(self._array) else wrap(pinned.page_locked(self._array))


def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether the elements lie in page-locked host memory."""
    from ...backend.cuda import pinned

    return self.is_cpu and pinned.is_page_locked(self._array)


def record_stream(self: Tensor, stream: Any) -> None:
    """Keep the elements' memory, when the tensor is dropped, until a stream that uses it has done what it was given."""
    if not self.is_cuda:
        raise NotImplementedError(f"record_stream: streams use a GPU's memory, and not {self.device}'s")
    from ...cuda.streams import lend

    lend(self._array, stream)


# -- kind and name -----------------------------------------------------------------------------

_TYPE_NAMES = {f"{word}Tensor": name for name, word in dtypes.SCALAR_TYPES.items()}
_NAME_OF = {dtype: name for name, dtype in _TYPE_NAMES.items()}


class TypedTensor(type):
    """`torch.FloatTensor` and its like: called, they make a tensor of their dtype; `isinstance` asks for it."""

    dtype: dtypes.DType
    place: str  # "cpu" or "cuda"

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        if Device(device or cls.place).type != cls.place:
            raise RuntimeError(f"legacy constructor expects device type: {cls.place} but got {device}")
        first: Any = args[0] if args else None
        if isinstance(first, Tensor) and first.dtype is not cls.dtype:
            raise TypeError(f"expected {cls.dtype}, got {first.dtype}: use Tensor.to(dtype)")
        if whole := getattr(first, "as_tensor", None):
            return whole(cls.dtype)  # of a storage, whose memory it shares
        made = data.tensor(first, dtype=cls.dtype, device="cpu") if _is_data(args) else Tensor(*args)
        return made.to(cls.place, cls.dtype)

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, Tensor) and instance.dtype is cls.dtype and instance.device.type == cls.place
        )

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__name__}'>"


def _is_data(args: tuple[Any, ...]) -> bool:
    return (
        len(args) == 1
        and isinstance(args[0], (list, tuple, range, np.ndarray, Tensor))
        and not hasattr(args[0], "numel")
    )


def _typed(place: str, module: str) -> dict[str, TypedTensor]:
    return {
        name: TypedTensor(name, (), {"dtype": dtypes.BY_NAME[d], "place": place, "__module__": module})
        for name, d in _TYPE_NAMES.items()
    }


TYPED = _typed("cpu", "torch")
"""The classes `FloatTensor`, `LongTensor` …, by name."""

CUDA_TYPED = _typed("cuda", "torch.cuda")
"""`torch.cuda.FloatTensor` and its like, by name."""

BFloat16Tensor, BoolTensor, ByteTensor, CharTensor, DoubleTensor, FloatTensor, HalfTensor = (
    TYPED[f"{name}Tensor"] for name in ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half")
)
IntTensor, LongTensor, ShortTensor = (TYPED[f"{name}Tensor"] for name in ("Int", "Long", "Short"))


@overload
def type_(self: Tensor, dtype: None = None, non_blocking: bool = False) -> str: ...
@overload
def type_(self: Tensor, dtype: Any, non_blocking: bool = False) -> Tensor: ...
def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> str | Tensor:
    """The name of the tensor's type ('torch.FloatTensor'), or the tensor in another: a dtype, class or name."""
    if dtype is None:
        place = ("" if self.is_cpu else f"{self.device.type}.") + ("sparse." if _is_sparse(self) else "")
        return f"torch.{place}{_NAME_OF[self.dtype.name]}"
    if dtype in (Tensor, "torch.Tensor"):
        return self.to("cpu", dtypes.get_default_dtype())
    if isinstance(dtype, TypedTensor):
        return self.to(dtype.place, dtype.dtype)
    if isinstance(dtype, str):
        kind, _, name = dtype.rpartition(".")
        if name not in _TYPE_NAMES or kind not in ("torch", "torch.cuda"):
            raise ValueError(f"invalid type: '{dtype}'")
        return self.to("cuda" if kind.endswith("cuda") else "cpu", dtypes.BY_NAME[_TYPE_NAMES[name]])
    return self.to(dtype)


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """True when both are the same elements of the same memory."""
    return (self.data_ptr(), self.shape, self.stride()) == (tensor.data_ptr(), tensor.shape, tensor.stride())


def is_storage(obj: object) -> bool:
    """True for what `Tensor.storage` and `Tensor.untyped_storage` return."""
    from ...core.storage import TypedStorage, UntypedStorage

    return isinstance(obj, (TypedStorage, UntypedStorage))


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory that the tensor shares with its views, in bytes."""
    if _is_sparse(self):
        raise NotImplementedError("Cannot access storage of SparseTensorImpl: ask its values()")
    from ...core.storage import UntypedStorage  # here and below, as few programs ask for it

    return UntypedStorage.of(self._array)


def storage(self: Tensor) -> TypedStorage:
    """The memory that the tensor shares with its views, in elements of its dtype."""
    from ...core.storage import TypedStorage

    return TypedStorage(dtype=self.dtype, wrap_storage=untyped_storage(self))


def attributes(self: Tensor) -> list[str]:
    """What `dir` lists: all attributes, but for what only CUDA tensors have."""
    return sorted(set(object.__dir__(self)) - (set() if self.is_cuda else {"__cuda_array_interface__"}))


def is_same_size(self: Tensor, other: Tensor) -> bool:
    """Whether `other` has the same shape."""
    return self.shape == other.shape


def is_signed(self: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return self.dtype.is_signed


def get_device(self: Tensor) -> int:
    """The number of the GPU; -1 on a CPU."""
    return int(self.device.index or 0) if self.is_cuda else -1


def dim_order(self: Tensor) -> tuple[int, ...]:
    """The dimensions from the largest step in memory to the smallest."""
    return tuple(sorted(range(self.ndim), key=lambda d: -self.stride(d)))


def _layout(self: Tensor) -> Layout:
    return SPARSE[self._array.layout] if _is_sparse(self) else strided


def _is_sparse(self: Tensor) -> bool:
    return isinstance(self._array, SparseArray)


def _is_coo(self: Tensor) -> bool:
    return _layout(self) is sparse_coo


def _is_csr(self: Tensor) -> bool:
    return _layout(self) is sparse_csr


def _name(self: Tensor) -> None:
    """Tensors have no names."""


def _is_cpu(self: Tensor) -> bool:
    return self.device.type == "cpu"


def _is_meta(self: Tensor) -> bool:
    return self.device.type == "meta"


def _no(self: Tensor) -> bool:
    return False


METHODS: dict[str, Any] = {
    "__dir__": attributes,
    "__array__": as_array,
    "__array_wrap__": array_wrap,
    "tolist": tolist,
    "__contains__": contains,
    "__reduce_ex__": reduce_ex,
    "__deepcopy__": deepcopy,
    "__copy__": shallow_copy,
    "__dlpack__": dlpack,
    "__dlpack_device__": dlpack_device,
    "__cuda_array_interface__": property(cuda_array_interface),
    "as_subclass": as_subclass,
    "is_shared": is_shared,
    "share_memory_": share_memory_,
    "pin_memory": pin_memory,
    "is_pinned": is_pinned,
    "record_stream": record_stream,
    "type": type_,
    "is_set_to": is_set_to,
    "is_same_size": is_same_size,
    "is_signed": is_signed,
    "is_distributed": _no,
    "get_device": get_device,
    "ndimension": Tensor.dim,
    "dim_order": dim_order,
    "is_sparse": property(_is_coo),
    "is_sparse_csr": property(_is_csr),
    "layout": property(_layout),
    "name": property(_name),
    "is_cpu": property(_is_cpu),
    "is_meta": property(_is_meta),
    **{
        f"is_{kind}": property(_no) for kind in ("quantized", "mps", "xpu", "xla", "mkldnn", "nested", "mtia")
    },
}
"""Methods and attributes of Tensor."""
