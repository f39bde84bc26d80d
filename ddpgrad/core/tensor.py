"""Tensor: an array, its place in the autograd graph, and its attributes.

This module holds the state. The operators and methods are ops (`ops/`), attached to the
class by `ops/methods.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, overload
from weakref import ref

import numpy as np

from ..backend import dtype as dtypes
from ..backend.device import CPU, Device
from ..backend.dtype import DType
from ..backend.elementary.shape import address_of
from ..backend.layout import lies_in
from ..backend.registry import SparseArray, backend_for
from .errors import real_numbers, warn_program
from .modes import InferenceVersions, apart, fresh_versions, inference, inferring, lend, mode, telling
from .size import Size, new_size, of_dimension
from .upcalls import tell_method
from .view import View

if TYPE_CHECKING:
    from ..autograd.graph import Node


class _Attributed:
    __slots__ = ("__dict__", "__weakref__")


_everything: Any = _Attributed.__dict__["__dict__"]  # what lies on a tensor, with what autograd keeps there


class Tensor(_Attributed):
    """A multi-dimensional array that can record operations for automatic differentiation."""

    # Hot state in slots; what few tensors have lies beside the program's attributes, with these class defaults.
    __slots__ = ("_array", "_grad_fn", "_output_nr", "_requires_grad", "_versions", "_view")
    _grad: Tensor | None = None
    _grad_dtype: Any = ...  # what a program set as grad_dtype
    _retains_grad: bool = False
    _accumulator: ref[Any] | None = None
    _accumulator_kept: Any = None  # the node, where nothing else keeps it
    _accumulator_hooks: tuple[dict[int, Any], dict[int, Any]] | None = None
    _plain_views: list[ref[Tensor]] | None = None  # views made while this base had no history
    _reshaped: bool = False  # in place, by t_() and its like: views of it made before know another shape
    _hooks: dict[int, Any] | None = None
    _post_accumulate_hooks: dict[int, Any] | None = None

    if TYPE_CHECKING:
        _array: Any
        _requires_grad: bool
        _grad_fn: Node | None
        _output_nr: int
        _versions: list[int]
        _view: View | None

        # Methods and operators are ops, attached by `ops/methods.py`; their types stand in `tensor.pyi`.
        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, index: Any) -> Tensor: ...
    else:

        @property
        def __dict__(self) -> Any:
            from .attributes import Attributes  # here, as few programs ask what they have set

            return Attributes(_everything.__get__(self), Tensor)

        @__dict__.setter
        def __dict__(self, attributes: Any) -> None:
            self.__dict__.become(attributes)

    def __new__(cls, *args: Any, device: Any = None) -> Self:
        """`Tensor(2, 3)`: uninitialised memory of that shape; `Tensor([1, 2])`: the data as floats."""
        if device is not None:
            return cls(*args).to(device)
        dtype, first = dtypes.get_default_dtype().numpy, args[0] if len(args) == 1 else None
        if isinstance(first, Tensor):
            out = wrap(first._array, cls)
            out._versions = first._versions
            return out
        if isinstance(first, (list, tuple, range, np.ndarray)) and not isinstance(first, Size):
            return wrap(real_numbers("Tensor", np.array(first)).astype(dtype), cls)
        sizes = first if isinstance(first, Size) else args or (0,)
        if not all(isinstance(n, (int, np.integer)) for n in sizes):
            raise TypeError(f"Tensor() takes sizes, a sequence, array or Tensor; got {[*map(type, args)]}")
        return wrap(np.empty(sizes, dtype=dtype), cls)

    # -- attributes ----------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        return new_size(Size, self._array.shape)

    @overload
    def size(self, dim: None = None) -> Size: ...
    @overload
    def size(self, dim: int) -> int: ...
    def size(self, dim: int | None = None) -> Size | int:
        """The shape, or the length of dimension `dim`."""
        return new_size(Size, self._array.shape) if dim is None else of_dimension(self._array.shape, dim)

    @property
    def ndim(self) -> int:
        return self._array.ndim

    def dim(self) -> int:
        return self._array.ndim

    def numel(self) -> int:
        """The number of elements."""
        return self._array.size

    nelement = numel

    def element_size(self) -> int:
        """Bytes per element."""
        return self._array.itemsize

    @property
    def itemsize(self) -> int:
        return self._array.itemsize

    @property
    def nbytes(self) -> int:
        return self._array.nbytes

    @property
    def dtype(self) -> DType:
        return dtypes.BY_NUMPY[self._array.dtype]

    @property
    def device(self) -> Device:
        array = self._array
        return CPU if array.__class__ is np.ndarray else backend_for(array).device_of(array)

    @property
    def is_cuda(self) -> bool:
        return backend_for(self._array).kind == "cuda"

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self.dtype.is_complex

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """True when the elements lie in order of the dimensions, or in that of `memory_format`."""
        return lies_in(self._array, memory_format)

    @overload
    def stride(self, dim: None = None) -> tuple[int, ...]: ...
    @overload
    def stride(self, dim: int) -> int: ...
    def stride(self, dim: int | None = None) -> tuple[int, ...] | int:
        """Steps in elements between neighbours, of every dimension or of `dim`."""
        array = self._array
        steps = [s // array.itemsize for s in array.strides]
        if 0 in steps:
            # NumPy has steps of 0 for a new dimension of length 1, and without elements; PyTorch those of dense elements.
            nothing = not (array.size or any(steps))
            for d in reversed(range(len(steps))):
                if nothing or (not steps[d] and array.shape[d] == 1):
                    steps[d] = steps[d + 1] * max(array.shape[d + 1], 1) if d + 1 < len(steps) else 1
        return tuple(steps) if dim is None else of_dimension(steps, dim)

    def data_ptr(self) -> int:
        """Address of the first element; 0 where there is none."""
        return address_of(self._array) if self._array.size else 0

    @property
    def requires_grad(self) -> bool:
        return self._requires_grad

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise RuntimeError("requires_grad must be a bool; set it to False")

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value is not True and value is not False:
            raise RuntimeError(f"requires_grad must be a bool, got {type(value).__name__}")
        if self._grad_fn is not None and not value:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed "
                "variable in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            )
        if value and self.dtype.category < 2:
            raise RuntimeError(
                f"only Tensors of floating point and complex dtype can require gradients, got {self.dtype}"
            )
        if value and self.is_inference() and not inference.on:
            raise RuntimeError(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed. clone() it first."
            )
        self._requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        if requires_grad is not True and requires_grad is not False:
            raise TypeError(
                f"requires_grad_(): argument 'requires_grad' must be bool, not {type(requires_grad).__name__}"
            )
        self.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self) -> bool:
        return self._grad_fn is None

    @property
    def output_nr(self) -> int:
        return self._output_nr

    @property
    def retains_grad(self) -> bool:
        return self._retains_grad

    def is_inference(self) -> bool:
        """True for a tensor that was made in `inference_mode`, and views of it."""
        return isinstance(self._versions, InferenceVersions)

    @property
    def _version(self) -> int:
        if isinstance(self._versions, InferenceVersions):
            raise RuntimeError("Inference tensors do not track version counter.")
        return self._versions[0]

    @property
    def _base(self) -> Tensor | None:
        return getattr(self._view, "base", None)

    def _is_view(self) -> bool:
        return self._view is not None

    @property
    def grad(self) -> Tensor | None:
        if self._grad is None and self._grad_fn is not None and not self._retains_grad:
            warn_program(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't "
                "be populated during autograd.backward(). If you indeed want the .grad field to be populated for a "
                "non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by "
                "mistake, make sure you access the leaf Tensor instead."
            )
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is None:
            self._grad = None
            return
        if not isinstance(value, Tensor):
            raise TypeError(f"assigned grad expected to be a Tensor or None but got {type(value).__name__}")
        if value is self:
            raise RuntimeError("can't assign Variable as its own grad")
        if value._array.shape != self._array.shape:
            raise RuntimeError(
                f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size '{list(self.shape)}'"
            )
        dtype = self.dtype if self._grad_dtype is ... else self._grad_dtype or value.dtype
        if value.dtype is not dtype or value.device != self.device:
            raise RuntimeError(
                f"attempting to assign a gradient with dtype '{value.dtype.cpp_name}' on {value.device} to a tensor "
                f"with grad_dtype '{dtype.scalar_type}' on {self.device}"
            )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    @property
    def data(self) -> Tensor:
        """The same memory without history; in-place changes to it are not tracked."""
        if telling and (told := tell_method("data", self)) is not NotImplemented:
            return told
        return apart(self._versions, wrap(self._array))

    @data.deleter
    def data(self) -> None:
        raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        if self._requires_grad and value.dtype.category < 2:
            raise RuntimeError(
                f"data set to a tensor that requires gradients must be floating point or complex dtype, got {value.dtype}"
            )
        self._array = value._array
        node = None if self._accumulator is None else self._accumulator()
        if node is not None:  # gradients must arrive in the new shape and type
            node.fit(value._array)

    def detach(self) -> Tensor:
        """The same memory and version counter, without history."""
        if telling and (told := tell_method("detach", self)) is not NotImplemented:
            return told
        out = wrap(self._array)
        out._versions = self._versions
        return out

    # -- leaving the tensor world --------------------------------------------------------

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The CPU array itself: memory is shared. `force` detaches and copies to the CPU first."""
        if force:
            return self.detach().cpu()._array
        if self._requires_grad and mode.enabled:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
            )
        if backend_for(self._array).kind != "cpu":
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
                "to host memory first."
            )
        if isinstance(self._array, SparseArray):
            layout = self._array.called
            raise TypeError(f"can't convert {layout} layout tensor to numpy. Use Tensor.to_dense() first.")
        return lend(self._versions, self._array)

    # NumPy leaves `array * tensor` to the tensor, and returns tensors from its ufuncs (`ops/creation/interop.py`).
    __array_priority__ = 1000

    def item(self) -> Any:
        """The only element, as a Python number."""
        if telling and (told := tell_method("item", self)) is not NotImplemented:
            return told
        if self._array.size != 1:
            raise RuntimeError(f"a Tensor with {self._array.size} elements cannot be converted to Scalar")
        value = self._array.item()
        return float(value) if self._array.dtype == dtypes.NARROW[1] else value

    def __bool__(self) -> bool:
        if telling and (told := tell_method("item", self)) is not NotImplemented:
            return bool(told)
        if self._array.size != 1:
            raise RuntimeError(
                f"Boolean value of Tensor with {'no values' if not self._array.size else 'more than one value'} is ambiguous"
            )
        return bool(self._array.item())

    def _number(self, real: str = "") -> Any:
        """`item` for Python's conversions, which fail with a `ValueError`. real: the name of the type that it goes to."""
        if self._array.size != 1:
            raise ValueError(f"only one element tensors can be converted to Python scalars, got {self.shape}")
        number = self.item()
        if real and isinstance(number, complex):
            if number.imag:
                raise RuntimeError(f"value cannot be converted to type {real} without overflow: {number}")
            return number.real
        return number

    def __float__(self) -> float:
        return float(self._number("double"))

    def __complex__(self) -> complex:
        return complex(self._number())

    def __int__(self) -> int:
        return int(self._number("int64_t"))

    def __index__(self) -> int:
        if self.dtype.category > 1 or self._array.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self) -> int:
        if self._array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self._array.shape[0]

    def __iter__(self) -> Any:
        if self._array.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        from .printing import format_tensor

        return format_tensor(self, tensor_contents)  # type: ignore[arg-type] # the class that the stub has under this name


_new = object.__new__


def wrap(array: Any, cls: type = Tensor) -> Any:
    """A new leaf Tensor around a raw array, without copying. The one constructor of the hot path."""
    t = _new(cls)
    t._array = array
    t._requires_grad = False
    t._grad_fn = None
    t._output_nr = 0
    t._versions = fresh_versions() if inferring else [0]
    t._view = None
    return t
