"""Parameter: a tensor that a module registers as its own, to be trained."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor, wrap
from ..ops.creation.factories import empty


class Parameter(Tensor):
    """A leaf tensor that becomes a module's parameter when it is assigned as an attribute.

    data: the values, whose memory is shared; requires_grad: whether backward fills `.grad`.
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter(): data must be a Tensor, got {type(data).__name__}")
        parameter = wrap(data._array, cls)
        parameter._versions = data._versions
        if requires_grad:
            parameter.requires_grad = True
        return parameter

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        copied = super().__deepcopy__(memo)
        copied._grad = None  # a copied model starts without gradients
        return copied  # type: ignore[return-value]


class Buffer(Tensor):
    """A tensor that becomes a module's buffer when it is assigned as an attribute."""

    __slots__ = ()
    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = empty(0)
        buffer = wrap(data._array, cls)
        buffer._versions = data._versions
        buffer.persistent = persistent
        return buffer


class UninitializedParameter(Parameter):
    """A parameter whose shape a lazy module learns from its first input; until then it holds nothing."""

    __slots__ = ()

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return super().__new__(cls, empty(0, device=device, dtype=dtype), requires_grad)

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become an ordinary parameter of `shape`, with values left to be filled in."""
        self.data = empty(tuple(shape), device=device or self.device, dtype=dtype or self.dtype)
        self.__class__ = Parameter  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, self.device, self.dtype)

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
            "to initialize the parameters before accessing their attributes."
        )

    def numel(self) -> int:
        raise ValueError(
            "numel(): a parameter of a lazy module has no size yet; call the module on an input first"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


def is_lazy(tensor: Any) -> bool:
    """True for a parameter that has no shape yet."""
    return isinstance(tensor, UninitializedParameter)
