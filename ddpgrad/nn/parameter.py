"""Parameter: a tensor that a module registers as its own, to be trained."""

from __future__ import annotations

from typing import Any, TypeGuard

from ..core.dispatching import is_told_class
from ..core.overrides import DisableTorchFunctionSubclass, disabled
from ..core.tensor import Tensor, wrap
from ..ops.creation.factories import empty


class _ParameterMeta(type):
    """`isinstance(x, Parameter)` holds for what `Parameter()` made of a subclass of Tensor."""

    def __instancecheck__(cls, instance: Any) -> bool:
        marked = cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)
        return marked or super().__instancecheck__(instance)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A leaf tensor that becomes a module's parameter when it is assigned as an attribute.

    data: the values, whose memory is shared; requires_grad: whether backward fills `.grad`. Of a subclass of Tensor that
    overrides functions it is another instance, which counts as one of Parameter.
    """

    __slots__ = ()
    __torch_function__ = staticmethod(disabled)

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter(): data must be a Tensor, got {type(data).__name__}")
        kind: Any = type(data)
        if hasattr(kind, "_as_parameter"):
            return kind._as_parameter(data, requires_grad)
        if kind is not Tensor and (kind.__torch_function__ is not disabled or is_told_class(kind)):
            marked: Any = data.detach().requires_grad_(requires_grad)
            if type(marked) is not kind:
                raise RuntimeError(
                    f"Creating a Parameter from an instance of type {kind.__name__} requires that detach() returns "
                    f"an instance of the same type, but return type {type(marked).__name__} was found instead."
                )
            marked._is_param, marked._view = True, None  # an optimizer may give it other memory
            return marked
        parameter = wrap(data._array, cls)
        parameter._versions = data._versions
        if requires_grad:
            with DisableTorchFunctionSubclass():
                parameter.requires_grad = True
        return parameter

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        copied = super().__deepcopy__(memo)
        copied._grad = None  # a copied model starts without gradients
        return copied  # type: ignore[return-value]


class _BufferMeta(type):
    """`isinstance(x, Buffer)` holds for what `Buffer()` returned."""

    def __instancecheck__(cls, instance: Any) -> bool:
        marked = cls is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)
        return marked or super().__instancecheck__(instance)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that becomes a module's buffer when it is assigned as an attribute.

    It is of the class of `data`, whose memory it shares, with a mark that a module looks for.
    """

    __slots__ = ()
    __torch_function__ = staticmethod(disabled)
    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = empty(0)
        return _marked(data.detach().requires_grad_(data.requires_grad), persistent)


def _marked(tensor: Any, persistent: bool) -> Any:
    """`tensor`, as a buffer."""
    tensor.persistent, tensor._is_buffer = persistent, True
    return tensor


class UninitializedTensorMixin(Tensor):
    """A tensor whose shape a lazy module learns from its first input; until then it has a dtype and a device only."""

    __slots__ = ()
    __torch_function__ = staticmethod(disabled)
    cls_to_become: type[Tensor] = Tensor

    @property
    def _array(self) -> Any:
        raise ValueError(
            f"Attempted to use an uninitialized parameter. This error happens when you are using a `LazyModule` or "
            f"explicitly manipulating `torch.nn.parameter.{type(self).__name__}` objects. When using LazyModules Call "
            "`forward` with a dummy batch to initialize the parameters before calling torch functions"
        )

    @_array.setter
    def _array(self, array: Any) -> None:
        _SLOT.__set__(self, array)

    _operand = _array

    @property
    def data(self) -> Tensor:
        """A tensor without elements, of the dtype and on the device."""
        return wrap(_SLOT.__get__(self))

    @data.setter
    def data(self, value: Tensor) -> None:
        self._array = value._array

    @data.deleter
    def data(self) -> None:
        raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    @property
    def device(self) -> Any:
        return self.data.device

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
            "to initialize the parameters before accessing their attributes."
        )

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become an ordinary parameter or buffer of `shape`, with values left to be filled in."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.data = empty(shape, device=device or self.device, dtype=dtype or self.dtype)
        self.__class__ = self.cls_to_become  # type: ignore[assignment]

    def share_memory_(self) -> Tensor:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters "
            "before calling `module.share_memory()`."
        )

    def __copy__(self) -> Any:
        make, options = self.__reduce_ex__(4)
        return make(*options)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        make, options = self.__reduce_ex__(4)
        return memo.setdefault(id(self), make(*options))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, self.device, self.dtype)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return f"<{type(self).__name__}>"


_SLOT: Any = Tensor.__dict__["_array"]


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape a lazy module learns from its first input."""

    __slots__ = ()
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return Parameter.__new__(cls, empty(0, device=device, dtype=dtype), requires_grad)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape a lazy module learns from its first input."""

    __slots__ = ()

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        buffer = wrap(empty(0, device=device, dtype=dtype)._array, cls)
        buffer._requires_grad = requires_grad
        return _marked(buffer, persistent)


def is_lazy(tensor: Any) -> TypeGuard[UninitializedTensorMixin]:
    """True for a parameter or buffer that has no shape yet."""
    return isinstance(tensor, UninitializedTensorMixin)
