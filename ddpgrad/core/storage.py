"""The memory under tensors: `UntypedStorage` counts bytes, `TypedStorage` elements of one dtype. They are views of it."""

from __future__ import annotations

import mmap
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..backend import dtype as dtypes
from ..backend.dtype import DType
from ..backend.elementary.shape import address_of, bytes_before, owner_of, strided_view
from ..backend.registry import SparseArray, backend_for
from .tensor import Tensor, wrap
from .upcalls import load_bytes

STORAGES = {word: dtypes.BY_NAME[name] for name, word in dtypes.SCALAR_TYPES.items()}
"""PyTorch's words for the element types of storages; the others lie in storages of bytes."""


def copied(array: Any, memo: dict[Any, Any]) -> tuple[Any, list[int]]:
    """A raw array on a copy of its memory, and the copy's version counter; `memo` knows which memory has been copied."""
    clone = backend_for(array).clone
    owner: Any = array if isinstance(array, SparseArray) else owner_of(array)
    if isinstance(array, SparseArray) or owner.dtype != array.dtype or not owner.flags.c_contiguous:
        return clone(array), [0]
    if not owner.nbytes or not address_of(owner):  # on meta there are no addresses
        return clone(array), [0]
    key = "memory", address_of(owner), owner.shape
    if key not in memo:
        memo[key] = clone(owner), [0]
    whole, versions = memo[key]
    if array is owner:
        return whole, versions
    steps = [step // array.itemsize for step in array.strides]
    return strided_view(whole, array.shape, steps, bytes_before(array, owner) // array.itemsize), versions


def _load_from_bytes(data: bytes) -> Any:
    """The storage in a pickle of a tensor, as PyTorch writes it; Python's own `pickle.load` calls this by its name."""
    return load_bytes(data)


def _lines(storage: UntypedStorage | TypedStorage) -> str:
    """One line for each element."""
    return "..." if storage.device.type == "meta" else "\n".join(f" {value}" for value in storage)


class _Storage:
    """What storages of bytes and of elements have in common."""

    device: Any
    nbytes: Callable[[], int]
    tolist: Callable[[], list[Any]]
    untyped: Callable[[], UntypedStorage]

    def is_shared(self) -> bool:
        """Whether other processes can have the memory as their own."""
        return wrap(self.untyped()._owner).is_shared()

    @property
    def _cdata(self) -> int:
        """A number that storages of the same memory have in common."""
        return id(self.untyped()._owner)

    def data_ptr(self) -> int:
        """Address of the first byte, 0 on meta."""
        return wrap(self.untyped()._owner).data_ptr()

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __sizeof__(self) -> int:
        """With the memory, for `sys.getsizeof`."""
        return object.__sizeof__(self) + self.nbytes()


class UntypedStorage(_Storage):
    """The memory that a tensor and its views share, in bytes; or new memory of so many bytes, or of these bytes."""

    def __init__(self, content: int | Sequence[int] = 0, *, device: Any = None) -> None:
        host = np.empty(content, np.uint8) if isinstance(content, int) else np.array(content, np.uint8)
        self._owner: Any = host if device is None else wrap(host).to(device)._array

    @classmethod
    def of(cls, array: Any) -> UntypedStorage:
        """The memory that a raw array and its views share."""
        storage = cls.__new__(cls)
        storage._owner = owner_of(array)
        return storage

    @classmethod
    def _part(cls, array: Any) -> UntypedStorage:
        """The memory of this view alone."""
        storage = cls.__new__(cls)
        storage._owner = array
        return storage

    @staticmethod
    def from_file(filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first `nbytes` bytes of a file, all of them for 0, mapped into memory.

        shared: what is written goes to the file, which is made, or made longer, if it has fewer bytes; else it stays
        in memory. ValueError for a file that is too short.
        """
        access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
        with open(filename, ("r+b" if os.path.exists(filename) else "w+b") if shared else "rb") as file:
            there = os.fstat(file.fileno()).st_size
            if shared and there < nbytes:
                file.truncate(there := nbytes)
            if there < nbytes or not there:
                raise ValueError(
                    f"UntypedStorage.from_file: {os.fspath(filename)} has {there} bytes, expected {max(nbytes, 1)}"
                )
            mapped = mmap.mmap(file.fileno(), nbytes or there, access=access)
        return UntypedStorage.of(np.frombuffer(mapped, np.uint8))

    @staticmethod
    def from_buffer(
        buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0, *, dtype: DType
    ) -> UntypedStorage:
        """A copy of `count` elements of `buffer`, all by default, from byte `offset` on.

        byte_order: "native", "little" or "big"; of single bytes there is none. ValueError for a buffer that is too short.
        """
        orders = {"native": "=", "little": "<", "big": ">"} | ({None: "="} if dtype.itemsize == 1 else {})
        if byte_order not in orders:
            raise ValueError(f"invalid byte_order {byte_order!r} (expected 'native', 'little' or 'big')")
        there = np.dtype(dtype.numpy).newbyteorder(orders[byte_order])  # type: ignore[arg-type]
        return UntypedStorage.of(np.frombuffer(buffer, there, count, offset).astype(dtype.numpy))

    def _bytes(self) -> Any:
        if self.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        return self.as_tensor(dtypes.uint8)._array

    @property
    def device(self) -> Any:
        return wrap(self._owner).device

    def nbytes(self) -> int:
        """Number of bytes."""
        return self._owner.nbytes

    size = __len__ = nbytes

    def element_size(self) -> int:
        """1: storages are counted in bytes."""
        return 1

    def as_tensor(self, dtype: DType) -> Tensor:
        """All of the memory as one dimension of `dtype`."""
        dense = self._owner.transpose(np.argsort([-s for s in self._owner.strides], kind="stable").tolist())
        return wrap(dense.reshape(-1).view(dtype.numpy))

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._bytes().__array_interface__

    def __getitem__(self, index: int | slice) -> Any:
        """A byte as a number, or the same memory from one place to another."""
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise RuntimeError(f"a storage is sliced in steps of 1, got {index.step}")
            return UntypedStorage._part(self._bytes()[index])
        return int(self._bytes()[operator.index(index)])

    def __setitem__(self, index: int | slice, value: Any) -> None:
        self._bytes()[index] = value._bytes() if isinstance(value, UntypedStorage) else value

    def tolist(self) -> list[int]:
        """The bytes as numbers."""
        return wrap(self._bytes()).tolist()

    def fill_(self, value: int) -> UntypedStorage:
        """Write `value` to all bytes."""
        self._bytes()[...] = value
        return self

    def copy_(self, source: UntypedStorage, non_blocking: bool | None = None) -> UntypedStorage:
        """Write the bytes of `source`, which has as many."""
        if len(source) != len(self):
            raise RuntimeError(f"copy_: a storage of {len(self)} bytes cannot take {len(source)}")
        self._bytes()[...] = source.to(device=self.device)._bytes()
        return self

    def clone(self) -> UntypedStorage:
        """Other memory with the same bytes."""
        return UntypedStorage.of(self._bytes().copy())

    def resize_(self, size: int) -> UntypedStorage:
        """Refused but for the size that it has: the memory of tensors does not change its size."""
        if size != len(self):
            raise NotImplementedError(
                f"resize_: a storage of {len(self)} bytes cannot be made one of {size}; make a new tensor"
            )
        return self

    def to(self, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
        """The memory on `device`: itself where it is there, else a copy."""
        moved = wrap(self._owner).to(device)._array
        return self if moved is self._owner else UntypedStorage.of(moved)

    def cpu(self) -> UntypedStorage:
        """The memory on the host."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """The memory on a GPU, the current one by default."""
        return self.to(device="cuda" if device is None else device)

    def untyped(self) -> UntypedStorage:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._owner is other._owner

    def __hash__(self) -> int:
        return id(self._owner)

    def __deepcopy__(self, memo: dict[Any, Any]) -> UntypedStorage:
        """Other memory, which the copies of tensors on this one share."""
        return UntypedStorage.of(copied(self._owner, memo)[0])

    def __repr__(self) -> str:
        numbers = _lines(self)
        return f"{numbers}\n[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]"


StorageBase = UntypedStorage  # the name by which programs ask with isinstance


class TypedStorage(_Storage):
    """The memory that a tensor and its views share, in elements of one dtype; or new memory of so many elements.

    wrap_storage: memory that is there already.
    """

    def __init__(
        self,
        content: int | Sequence[Any] = 0,
        *,
        dtype: DType | None = None,
        device: Any = None,
        wrap_storage: UntypedStorage | None = None,
    ) -> None:
        self.dtype = dtypes.get_default_dtype() if dtype is None else dtype
        if wrap_storage is None:
            kind = self.dtype.numpy
            host = np.empty(content, kind) if isinstance(content, int) else np.array(content, kind)
            wrap_storage = UntypedStorage.of(host if device is None else wrap(host).to(device)._array)
        self._untyped_storage = wrap_storage

    def _tensor(self) -> Tensor:
        return self._untyped_storage.as_tensor(self.dtype)

    def as_tensor(self, dtype: DType) -> Tensor:
        """All of the elements, whose dtype has to be `dtype`."""
        if dtype is not self.dtype:
            raise RuntimeError(f"Expected a Storage of type {dtype.name}, got one of {self.dtype.name}")
        return self._tensor()

    def __deepcopy__(self, memo: dict[Any, Any]) -> TypedStorage:
        return TypedStorage(dtype=self.dtype, wrap_storage=self._untyped_storage.__deepcopy__(memo))

    @property
    def device(self) -> Any:
        return self._untyped_storage.device

    def pickle_storage_type(self) -> str:
        """`FloatStorage` and its like."""
        return f"{next(word for word, dtype in STORAGES.items() if dtype is self.dtype)}Storage"

    def type(self, dtype: Any = None) -> str | TypedStorage:
        """`torch.FloatStorage` and its like, or a copy of the elements in another dtype."""
        return f"torch.{self.pickle_storage_type()}" if dtype is None else self._of_type(dtype)

    def _of_type(self, dtype: DType) -> TypedStorage:
        wanted = self._tensor().to(dtype)
        return (
            self if dtype is self.dtype else TypedStorage(dtype=dtype, wrap_storage=wanted.untyped_storage())
        )

    def untyped(self) -> UntypedStorage:
        """The same memory in bytes."""
        return self._untyped_storage

    def nbytes(self) -> int:
        """Number of bytes."""
        return self._untyped_storage.nbytes()

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def size(self) -> int:
        """Number of elements."""
        return self.nbytes() // self.element_size()

    __len__ = size

    def __getitem__(self, index: int) -> Any:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._tensor()._array[operator.index(index)].item()

    def __setitem__(self, index: int | slice, value: Any) -> None:
        self._tensor()._array[index] = value

    def tolist(self) -> list[Any]:
        """The elements as numbers."""
        return self._tensor().tolist()

    def fill_(self, value: Any) -> TypedStorage:
        """Write `value` to all elements."""
        self._tensor()._array[...] = value
        return self

    def copy_(self, source: TypedStorage, non_blocking: bool | None = None) -> TypedStorage:
        """Write the elements of `source`, which has as many."""
        if len(source) != len(self):
            raise RuntimeError(f"copy_: a storage of {len(self)} elements cannot take {len(source)}")
        self._tensor()._array[...] = source._tensor().to(self.device, self.dtype)._array
        return self

    def clone(self) -> TypedStorage:
        """Other memory with the same elements."""
        return TypedStorage(dtype=self.dtype, wrap_storage=self._untyped_storage.clone())

    def cpu(self) -> TypedStorage:
        """The memory on the host."""
        return TypedStorage(dtype=self.dtype, wrap_storage=self._untyped_storage.cpu())

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """The memory on a GPU, the current one by default."""
        return TypedStorage(dtype=self.dtype, wrap_storage=self._untyped_storage.cuda(device))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and (self.dtype, self._untyped_storage) == (
            other.dtype,
            other._untyped_storage,
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        numbers = _lines(self)
        about = f"dtype={self.dtype}, device={self.device}"
        return f"{numbers}\n[torch.storage.TypedStorage({about}) of size {len(self)}]"


def _cast(dtype: DType) -> Any:
    return lambda self: self._of_type(dtype)


for _word, _dtype in STORAGES.items():
    setattr(TypedStorage, _word.lower().replace("complex", "complex_"), _cast(_dtype))


class _OfType(type):
    """`torch.FloatStorage` and its like: called, they make a storage of their dtype; `isinstance` asks for it."""

    dtype: DType

    def __call__(cls, *content: Any, **options: Any) -> TypedStorage:
        return TypedStorage(*content, dtype=cls.dtype, **options)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype

    def from_buffer(cls, *arguments: Any, **options: Any) -> TypedStorage:
        """A copy of a buffer's elements: see `UntypedStorage.from_buffer`."""
        return cls(wrap_storage=UntypedStorage.from_buffer(*arguments, dtype=cls.dtype, **options))

    _from_buffer = from_buffer

    def from_file(cls, filename: str, shared: bool = False, size: int = 0) -> TypedStorage:
        """The first `size` elements of a file: see `UntypedStorage.from_file`."""
        return cls(wrap_storage=UntypedStorage.from_file(filename, shared, size * cls.dtype.itemsize))


def _typed(word: str) -> _OfType:
    return _OfType(f"{word}Storage", (), {"dtype": STORAGES[word], "__module__": "torch"})


BFloat16Storage, BoolStorage, ByteStorage, CharStorage, ComplexDoubleStorage, ComplexFloatStorage = map(
    _typed, ("BFloat16", "Bool", "Byte", "Char", "ComplexDouble", "ComplexFloat")
)
DoubleStorage, FloatStorage, HalfStorage, IntStorage, LongStorage, ShortStorage = map(
    _typed, ("Double", "Float", "Half", "Int", "Long", "Short")
)
