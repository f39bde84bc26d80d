"""`MaskedTensor`: elements together with a mask that says which of them are there; for `torch.masked`.

A function of one is made of functions of its elements and of its mask: arithmetic asks that masks are the same, views
and the like change both, reductions are those of `torch.masked`. So the history is that of the elements, with two
Functions that take them out and put them in, and the gradient of a MaskedTensor is one with its mask. A function that is
in none of the lists below means nothing to a mask, and is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeGuard

from ... import (
    as_tensor,
    autograd,
    empty,
    is_grad_enabled,
    ones_like,
    sparse_coo,
    sparse_coo_tensor,
    sparse_csr,
    sparse_csr_tensor,
    strided,
)
from ... import where as _where
from ...backend.dtype import bool_, float16, float32, float64, int8, int16, int32, int64
from ...core.overrides import DisableTorchFunctionSubclass
from ...core.tensor import Tensor, wrap
from . import functions
from .printing import shown

_KINDS = {
    name: kind
    for kind, names in {
        # What gives each element from those in the same place.
        "elementwise": "abs absolute acos arccos acosh arccosh angle asin arcsin asinh arcsinh atan arctan atanh arctanh "
        "bitwise_not invert ceil clamp clip conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor "
        "frac lgamma log log10 log1p log2 logit i0 isnan nan_to_num neg negative pos positive pow rpow rad2deg reciprocal "
        "round rsqrt sigmoid sign sgn signbit sin sinc sinh sqrt square tan tanh trunc clone copy detach ones_like to type "
        "float double half int long short bool add radd atan2 arctan2 bitwise_and bitwise_or bitwise_xor and or xor rand ror "
        "rxor bitwise_left_shift bitwise_right_shift lshift rshift div divide rdiv truediv rtruediv floor_divide floordiv "
        "rfloordiv fmod logaddexp logaddexp2 mul rmul multiply nextafter remainder mod rmod sub rsub subtract true_divide eq "
        "ne le ge greater greater_equal gt less_equal lt less maximum minimum fmax fmin not_equal",
        # What puts elements elsewhere, those of the mask as those of the data.
        "of both": "select transpose t split chunk unbind getitem iter expand expand_as view reshape flatten unsqueeze squeeze "
        "permute cat concat stack unfold narrow",
        "reduction": "sum mean amin amax argmin argmax prod all norm var std",
        "along": "softmax log_softmax cumsum cumprod",
        # What a MaskedTensor answers as any other tensor.
        "of tensors": "size dim ndimension numel nelement stride storage_offset element_size is_floating_point is_complex "
        "is_signed is_same_size backward retain_grad register_hook register_post_accumulate_grad_hook requires_grad_ get "
        "get_device set len hash is_tensor grad",
    }.items()
    for name in names.split()
}

_DTYPES = (float16, float32, float64, bool_, int8, int16, int32, int64)


def is_masked_tensor(obj: Any, /) -> TypeGuard[MaskedTensor]:
    """Whether `obj` is a MaskedTensor."""
    return isinstance(obj, MaskedTensor)


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two masks are the same."""
    if a.layout is not b.layout:
        raise ValueError(f"`a` and `b` must have the same layout. Got {a.layout} and {b.layout}")
    if a.layout is not strided:
        return _same_places(a, b) and bool((a.values() == b.values()).all())
    return a.ndim == b.ndim and bool((a == b).all())


def _same_places(a: Tensor, b: Tensor) -> bool:
    """Whether two sparse tensors hold elements of the same places."""
    return all(
        x.shape == y.shape and bool((x == y).all()) for x, y in zip(_places(a), _places(b), strict=True)
    )


def _places(sparse: Tensor) -> tuple[Tensor, ...]:
    """The indices of what a sparse tensor holds."""
    return (
        (sparse.indices(),) if sparse.layout is sparse_coo else (sparse.crow_indices(), sparse.col_indices())
    )


def _with_values(sparse: Tensor, values: Tensor) -> Tensor:
    """A sparse tensor with the places of another."""
    if sparse.layout is sparse_coo:
        return sparse_coo_tensor(sparse.indices(), values, sparse.shape).coalesce()
    return sparse_csr_tensor(sparse.crow_indices(), sparse.col_indices(), values, sparse.shape)


class MaskedTensor(Tensor):
    """A tensor of which the elements count that `mask` says: `torch.masked.masked_tensor(data, mask)`.

    data, mask: copied. Of one shape and one layout, strided, sparse_coo or sparse_csr; what is sparse has a value in the
    mask for each that it has in the data.
    """

    _masked_mask: Tensor

    @staticmethod
    def __new__(cls: Any, data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
        for name, given in (("data", data), ("mask", mask)):
            if is_masked_tensor(given) or not isinstance(given, Tensor):
                raise TypeError(f"{name} must be a Tensor")
        if data.requires_grad:
            warnings.warn(
                "It is not recommended to create a MaskedTensor with a tensor that requires_grad. "
                "To avoid this, you can use data.detach().clone()",
                UserWarning,
                stacklevel=2,
            )
        return _made(cls, data.detach().clone(), mask.detach().clone(), requires_grad)

    def __init__(self, data: Tensor, mask: Tensor, requires_grad: bool = False) -> None:
        pass

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__
        if "of tensors" not in (_KINDS.get(name), _KINDS.get(name.strip("_"))):
            return _answer(func, name, args, kwargs or {})
        with DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _answer(func, func.overloadpacket.__name__, args, kwargs or {})

    def get_data(self) -> Tensor:
        """The elements, whatever the mask says of them; with the history of this tensor."""
        return _Data.apply(self)

    def get_mask(self) -> Tensor:
        """Which elements are there."""
        return self._masked_mask

    @property
    def _masked_data(self) -> Tensor:
        made = wrap(self._array)
        made._versions = self._versions
        return made

    def to_tensor(self, value: Any) -> Tensor:
        """The elements, with `value` in the place of those that are not there."""
        return self.get_data().masked_fill(~self.get_mask(), value)

    def is_sparse_coo(self) -> bool:
        return self.layout is sparse_coo

    def is_sparse_csr(self) -> bool:  # type: ignore[override]
        return self.layout is sparse_csr

    @property
    def is_sparse(self) -> bool:
        return self.layout is not strided

    def is_contiguous(self, **options: Any) -> bool:  # type: ignore[override]
        return self._dense("is_contiguous")._masked_data.is_contiguous(**options)

    def contiguous(self, **options: Any) -> MaskedTensor:  # type: ignore[override]
        self._dense("contiguous")
        return _joined(self.get_data().contiguous(**options), self._masked_mask.contiguous(**options))

    def _dense(self, name: str) -> MaskedTensor:
        if self.is_sparse:
            raise ValueError(f"MaskedTensors with sparse data do not have {name}")
        return self

    def to_dense(self) -> MaskedTensor:  # type: ignore[override]
        return _joined(self.get_data().to_dense(), self._masked_mask.to_dense()) if self.is_sparse else self

    def to_sparse(self) -> MaskedTensor:  # type: ignore[override]
        """Of the layout sparse_coo, with the elements that are there."""
        if self.is_sparse_coo():
            return self
        mask = self._masked_mask.to_sparse().coalesce()
        return _joined(self.get_data().to_dense().sparse_mask(mask), mask)

    to_sparse_coo = to_sparse

    def to_sparse_csr(self) -> MaskedTensor:  # type: ignore[override]
        if self.ndim != 2:
            raise ValueError(
                f"Only 2D tensors can be converted to the SparseCsr layout but got shape: {self.size()}"
            )
        if self.is_sparse_csr():
            return self
        mask = self._masked_mask.to_sparse_csr()
        return _joined(self.get_data().to_dense().sparse_mask(mask), mask)

    @property
    def T(self) -> Tensor:
        return self.t()

    def item(self) -> Any:
        if not bool(self._masked_mask):
            raise ValueError("item: the mask leaves the element out")
        return self._masked_data.item()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self, **options: Any) -> str:
        data, mask = self._masked_data, self._masked_mask
        data, mask = (data.to_dense(), mask.to_dense()) if self.is_sparse else (data, mask)
        return shown(data, mask)

    def __deepcopy__(self, memo: dict[int, Any]) -> MaskedTensor:
        if self.grad_fn is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment"
            )
        if id(self) not in memo:
            made = _made(type(self), self._masked_data.clone(), self._masked_mask.clone(), self.requires_grad)
            memo[id(self)] = made
            if self.grad is not None:
                made.grad = self.grad.__deepcopy__(memo)
        return memo[id(self)]

    def __copy__(self) -> MaskedTensor:
        return _made(type(self), self._masked_data, self._masked_mask, self.requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return MaskedTensor, (self._masked_data, self._masked_mask, self.requires_grad)


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """A MaskedTensor without history, whatever `data` has."""
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """A MaskedTensor with the history of `data`, which gets its gradient as a MaskedTensor."""
    return _Masked.apply(data, mask, False)


class _Data(autograd.Function):
    """The elements of a MaskedTensor."""

    @staticmethod
    def forward(ctx: Any, masked_tensor: MaskedTensor) -> Tensor:
        ctx.mask = masked_tensor._masked_mask
        return masked_tensor._masked_data

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
        return grad if is_masked_tensor(grad) else _joined(grad, ctx.mask)


class _Masked(autograd.Function):
    """A MaskedTensor of elements. within: these are `_Data` of another one, and get an ordinary gradient."""

    @staticmethod
    def forward(ctx: Any, data: Tensor, mask: Tensor, within: bool) -> MaskedTensor:
        ctx.within = within
        return MaskedTensor(data.detach(), mask)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
        return grad.get_data() if ctx.within and is_masked_tensor(grad) else grad, None, None


def _joined(data: Tensor, mask: Tensor) -> MaskedTensor:
    return _Masked.apply(data, mask, True)


def _made(cls: type, data: Tensor, mask: Tensor, requires_grad: bool) -> Any:
    """A MaskedTensor of memory that is its own."""
    if data.layout is not mask.layout:
        raise TypeError("data and mask must have the same layout.")
    if mask.dtype is not bool_:
        raise TypeError("mask must have dtype bool.")
    if data.dtype not in _DTYPES:
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    if data.ndim != mask.ndim:
        raise ValueError("data.dim() must equal mask.dim()")
    if data.shape != mask.shape:
        raise ValueError("data.size() must equal mask.size()")
    if data.layout is sparse_coo:
        data, mask = data.coalesce(), mask.coalesce()
    if data.layout is not strided and data._nnz() != mask._nnz():
        data = data.to_dense().sparse_mask(mask)
    if data.layout is not strided and not _same_places(data, mask):
        raise ValueError(f"data and mask are both {data.layout} tensors but do not have the same indices.")
    made: Any = wrap(data._array, cls)
    made._masked_mask = mask
    return made.requires_grad_() if requires_grad else made


# -- functions ------------------------------------------------------------------------------------


def _each(values: Any, part: Callable[[MaskedTensor], Tensor]) -> Any:
    """`values` with a part of each MaskedTensor in its place."""
    if isinstance(values, (tuple, list)):
        return type(values)(_each(v, part) for v in values)
    if isinstance(values, dict):
        return {k: _each(v, part) for k, v in values.items()}
    return part(values) if is_masked_tensor(values) else values


def _mask_of(value: MaskedTensor) -> Tensor:
    return value._masked_mask


def _answer(func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """What the function of that name gives, of which a MaskedTensor is an argument."""
    in_place, name = name.endswith("_") and not name.endswith("__"), name.strip("_")
    kind = None if "out" in kwargs else _KINDS.get(name)
    if kind == "elementwise":
        return _elementwise(func, args, kwargs, in_place)
    if in_place:
        return NotImplemented
    if kind == "of both":
        data = func(*_each(args, MaskedTensor.get_data), **kwargs)
        mask = func(*_each(args, _mask_of), **kwargs)
        if isinstance(data, (tuple, list)):
            return type(data)(map(_joined, data, mask))
        return _joined(data, mask)
    if name == "where" and len(args) == 3:
        whole = [
            v if is_masked_tensor(v) else as_masked_tensor(v, ones_like(v, dtype=bool_)) for v in args[1:]
        ]
        data, mask = ([part(v) for v in whole] for part in (MaskedTensor.get_data, _mask_of))
        return _joined(_where(args[0], *data), _where(args[0], *mask))
    if kind == "reduction" and is_masked_tensor(args[0]):
        return _reduced(name, *args, **kwargs)
    if kind == "along" and is_masked_tensor(args[0]):
        return _along(name, *args, **kwargs)
    return NotImplemented


def _elementwise(func: Any, args: Any, kwargs: dict[str, Any], in_place: bool) -> Any:
    first, *others = [v for v in args if is_masked_tensor(v)]
    for other in others:
        if not _same(first._masked_mask, other._masked_mask):
            raise ValueError(
                "Input masks must match. If you need support for this, please open an issue on Github."
            )
    if in_place and first is not args[0]:
        raise TypeError("a MaskedTensor cannot be written into an ordinary tensor")
    if in_place and first.requires_grad and is_grad_enabled():
        raise RuntimeError("a MaskedTensor that requires grad cannot be changed in place")
    data = _each(args, MaskedTensor.get_data)
    if first.is_sparse:
        values = func(
            *(v.values() if isinstance(v, Tensor) and v.layout is first.layout else v for v in data), **kwargs
        )
        if in_place:
            return first
        return _joined(_with_values(data[0], values), first._masked_mask)
    found = func(*data, **kwargs)
    return first if in_place else _joined(found, first._masked_mask.expand_as(found))


def _reduced(
    name: str, input: MaskedTensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    """What `torch.masked` has of that name; there where the mask has anything of a slice."""
    data, mask = input.get_data(), input._masked_mask
    if input.is_sparse:
        if dim is not None or (name.startswith("arg") and not input.is_sparse_coo()):
            return NotImplemented
        found = _function(name)(data.values(), dim, keepdim, dtype, mask.values())
        if name.startswith("arg"):
            steps = empty(input.shape, device="meta").stride()
            places = data.indices()[:, found.long()]
            found = (places * as_tensor(steps)).sum().to(data.dtype)
        return _joined(found, mask.values().any())
    return _joined(
        _function(name)(data, dim, keepdim, dtype, mask),
        mask.any() if dim is None else mask.any(dim, keepdim),
    )


def _function(name: str) -> Callable[..., Tensor]:
    """The reduction of that name, of data, dim, keepdim, dtype and mask."""
    if name == "all":
        return lambda data, dim, keepdim, dtype, mask: data.masked_fill(~mask, True).all(dim, keepdim)
    function = getattr(functions, name)
    return lambda data, dim, keepdim, dtype, mask: function(
        data, dim=dim, keepdim=keepdim, dtype=dtype, mask=mask
    )


def _along(name: str, input: MaskedTensor, dim: int, dtype: Any = None) -> MaskedTensor:
    data, mask = input._dense(name).get_data(), input._masked_mask
    return _joined(getattr(functions, name)(data, dim, dtype=dtype, mask=mask), mask)
