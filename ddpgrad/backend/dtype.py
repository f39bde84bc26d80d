"""Element types: PyTorch's names over NumPy's dtypes, and PyTorch's promotion rules.

Source of the rules: https://pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from ..core.rank_local import RankLocal

SCALAR_TYPES = {
    "bool": "Bool", "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long",
    "float16": "Half", "bfloat16": "BFloat16", "float32": "Float", "float64": "Double",
    "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}  # fmt: skip
"""The words for element types in PyTorch's messages, and in its names of classes, such as FloatTensor."""


class DType:
    """An element type. Compares by identity; `numpy` is the dtype of the arrays that hold it.

    Whoever asks a float of 16 bits for it may make such an array: `prepare_narrow` runs before. No array library has
    complex32, integers of less than 8 bits and their like, which are there to be named and compared with.
    """

    __slots__ = ("_numpy", "category", "itemsize", "name", "numpy")

    def __init__(self, name: str, numpy: Any, category: int, itemsize: int = 0) -> None:
        self.name = name
        self.category = category  # 0 bool, 1 integer, 2 floating point, 3 complex
        self._numpy = None if numpy is None else np.dtype(numpy)
        self.itemsize = itemsize if self._numpy is None else self._numpy.itemsize
        if self._numpy is not None and name not in ("float16", "bfloat16"):
            self.numpy = self._numpy

    def __getattr__(self, name: str) -> Any:
        if name != "numpy":
            raise AttributeError(
                f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self
            )
        if self._numpy is None:
            raise TypeError(f"there are no tensors of {self!r} here; known are {', '.join(BY_NAME)}")
        prepare_narrow()
        return self._numpy

    @property
    def is_floating_point(self) -> bool:
        return self.category == 2

    @property
    def is_complex(self) -> bool:
        return self.category == 3

    @property
    def scalar_type(self) -> str:
        """The name that PyTorch's messages have for this type: Float, Long and their like."""
        return SCALAR_TYPES.get(self.name, self.name)

    @property
    def cpp_name(self) -> str:
        """The name that PyTorch's messages about `out=` have for this type."""
        parts = {"float32": "float", "float64": "double"}
        if self.category == 3:
            return f"c10::complex<{parts[self.to_real().name]}>"
        if self.name in ("float16", "bfloat16"):
            return f"c10::{self.scalar_type}"
        integers = {1: "char", 2: "short int", 4: "int", 8: "long int"}
        sign = "unsigned " * (self.name[0] == "u") or "signed " * (self.name == "int8")
        return sign + integers[self.itemsize] if self.category == 1 else parts.get(self.name, self.name)

    def to_complex(self) -> DType:
        """The complex type with parts of this one."""
        return complex128 if self in (float64, complex128) else complex64

    def to_real(self) -> DType:
        """The type of the parts of this complex one; other types are their own."""
        return {complex64: float32, complex128: float64}.get(self, self)

    @property
    def is_signed(self) -> bool:
        if self._numpy is None:
            return not self.name.startswith(("uint", "quint", "float8"))
        return self._numpy.kind not in "bu"

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return "bool_" if self.name == "bool" else self.name

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: object) -> DType:
        return self


PREPARE: list[Callable[[], None]] = []
"""What a backend does before the first array of 16-bit floats."""


def prepare_narrow() -> None:
    """Do that, where it was not done: programs may make such arrays without asking for their dtype."""
    while PREPARE:
        PREPARE.pop()()
        float16.numpy, bfloat16.numpy = NARROW


bool_ = DType("bool", np.bool_, 0)
uint8 = DType("uint8", np.uint8, 1)
uint16 = DType("uint16", np.uint16, 1)
uint32 = DType("uint32", np.uint32, 1)
uint64 = DType("uint64", np.uint64, 1)
int8 = DType("int8", np.int8, 1)
int16 = DType("int16", np.int16, 1)
int32 = DType("int32", np.int32, 1)
int64 = DType("int64", np.int64, 1)
float16 = DType("float16", np.float16, 2)
bfloat16 = DType("bfloat16", ml_dtypes.bfloat16, 2)
float32 = DType("float32", np.float32, 2)
float64 = DType("float64", np.float64, 2)
complex64 = DType("complex64", np.complex64, 3)
complex128 = DType("complex128", np.complex128, 3)

float8_e4m3fn = DType("float8_e4m3fn", ml_dtypes.float8_e4m3fn, 2)
float8_e5m2 = DType("float8_e5m2", ml_dtypes.float8_e5m2, 2)
float8_e4m3fnuz = DType("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 2)
float8_e5m2fnuz = DType("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, 2)

complex32 = DType("complex32", None, 3, itemsize=4)
float4_e2m1fn_x2, float8_e8m0fnu = (
    DType(name, None, 2, 1) for name in ("float4_e2m1fn_x2", "float8_e8m0fnu")
)
int1, int2, int3, int4, int5, int6, int7 = (DType(f"int{bits}", None, 1, 1) for bits in range(1, 8))
uint1, uint2, uint3, uint4, uint5, uint6, uint7 = (DType(f"uint{bits}", None, 1, 1) for bits in range(1, 8))
qint8, quint8, quint2x4, quint4x2 = (
    DType(name, None, 1, 1) for name in ("qint8", "quint8", "quint2x4", "quint4x2")
)
qint32 = DType("qint32", None, 1, 4)

NARROW = (float16.numpy, bfloat16.numpy)
"""How arrays hold float16 and bfloat16. Compare with these: `bfloat16.numpy` prepares for such arrays to come."""

_FLOAT8 = (float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz)
_WIDE_UNSIGNED = (uint16, uint32, uint64)
ALL = (
    bool_, uint8, *_WIDE_UNSIGNED, int8, int16, int32, int64, *_FLOAT8, float16, bfloat16, float32, float64,
    complex64, complex128,
)  # fmt: skip
BY_NUMPY: dict[np.dtype[Any], DType] = {d.numpy: d for d in ALL}
BY_NAME: dict[str, DType] = {d.name: d for d in ALL}
_PYTHON = {bool: bool_, int: int64, float: float64, complex: complex128}

_default: RankLocal[DType] = RankLocal(lambda: float32)


@cache
def largest(dtype: DType) -> float:
    """The largest finite number that elements of a floating-point or complex type hold, in either part."""
    return float(ml_dtypes.finfo(dtype.numpy).max)


def get_default_dtype() -> DType:
    """The floating-point type of tensors made from Python floats (per rank)."""
    return _default.get()


def set_default_dtype(dtype: DType) -> None:
    """Make `dtype`, a floating-point type, the default of this rank."""
    if not isinstance(dtype, DType) or not dtype.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {dtype!r}")
    _default.set(dtype)


def of(dtype: Any) -> DType:
    """The `DType` for a `DType`, a NumPy dtype or scalar type, or Python's bool, int, float, complex."""
    if isinstance(dtype, DType):
        return dtype
    if dtype in _PYTHON:
        return _PYTHON[dtype]
    try:
        return BY_NUMPY[np.dtype(dtype)]
    except (KeyError, TypeError):
        names = ", ".join(BY_NAME)
        raise TypeError(f"unknown dtype {dtype!r}; known are {names}") from None


def numpy_of(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype that stores `dtype`."""
    if isinstance(dtype, DType):
        return dtype.numpy
    return dtype if isinstance(dtype, np.dtype) and dtype in BY_NUMPY else of(dtype).numpy


def scalar_category(value: Any) -> int:
    """The category of a Python number: 0 bool, 1 integer, 2 floating point, 3 complex."""
    if isinstance(value, (bool, np.bool_)):
        return 0
    if isinstance(value, (int, np.integer)):
        return 1
    if isinstance(value, (float, np.floating)):
        return 2
    if isinstance(value, complex):
        return 3
    raise TypeError(f"expected a number or a Tensor, got {type(value).__name__}")


@lru_cache(maxsize=256)
def promote_types(type1: DType, type2: DType) -> DType:
    """The type that holds the values of both, by PyTorch's table."""
    if type1 is type2:
        return type1
    if type1.category != type2.category:
        low, high = (type1, type2) if type1.category < type2.category else (type2, type1)
        if high is complex64 and low is float64:
            return complex128
        return high
    if {type1, type2} == {float16, bfloat16}:
        return float32
    if type1 in _FLOAT8 or type2 in _FLOAT8:
        raise RuntimeError(
            f"Promotion for Float8 Types is not supported, attempted to promote {type1.name} and {type2.name}"
        )
    if type1 in _WIDE_UNSIGNED or type2 in _WIDE_UNSIGNED:
        raise RuntimeError(
            f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote {type1.name} and {type2.name}"
        )
    return BY_NUMPY[np.promote_types(type1.numpy, type2.numpy)]


def result_type(tensors: list[tuple[np.dtype[Any], int]], scalars: list[int]) -> DType:
    """PyTorch's result type of an operation.

    tensors: (NumPy dtype, number of dimensions) of every tensor; scalars: categories of
    the Python numbers. Tensors with dimensions count first, then 0-dimensional tensors,
    then numbers; a later kind counts only when its category is higher.
    """
    best: DType | None = None
    for zero_dim in (False, True):
        part: DType | None = None
        for dtype, ndim in tensors:
            if (ndim == 0) is zero_dim:
                d = BY_NUMPY[dtype]
                part = d if part is None else promote_types(part, d)
        if part is None:
            continue
        if best is not None and best.category == 2 and part.category == 3:
            best = complex128 if best is float64 else complex64  # the width is that of what counts first
        elif best is None or part.category > best.category:
            best = part
    category = max(scalars, default=0)
    if best is None or category > best.category:
        default = get_default_dtype()
        number = (bool_, int64, default, complex128 if default is float64 else complex64)[category]
        if best is not None and best.category == 2:  # the number is complex, and no wider than the tensor
            number = complex128 if best is float64 else complex64
        best = number
    return best


class finfo:
    """Limits of a floating-point type: `eps`, `max`, `min`, `tiny`, `bits` …"""

    def __init__(self, dtype: Any = None) -> None:
        self._dtype = of(dtype) if dtype is not None else get_default_dtype()
        if self._dtype.category < 2:
            raise TypeError(
                f"finfo(): expected a floating-point dtype, got {self._dtype!r}. Use torch.iinfo."
            )
        info = ml_dtypes.finfo(self._dtype.numpy)
        self.bits = int(info.bits)
        self.eps = float(info.eps)
        self.max = float(info.max)
        self.min = float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = 10.0 ** -int(info.precision)
        self.dtype = self._dtype.to_real().name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, finfo) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(self._dtype)

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        limits = ", ".join(f"{name}={getattr(self, name):g}" for name in names)
        return f"finfo({limits}, dtype={self.dtype})"


class iinfo:
    """Limits of an integer type: `max`, `min`, `bits`."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = of(dtype)
        if self._dtype.category != 1:
            raise TypeError(f"iinfo(): expected an integer dtype, got {self._dtype!r}. Use torch.finfo.")
        info = np.iinfo(self._dtype.numpy)
        self.bits, self.max, self.min = int(info.bits), int(info.max), int(info.min)
        self.dtype = self._dtype.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, iinfo) and other._dtype is self._dtype

    def __hash__(self) -> int:
        return hash(self._dtype)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
