"""The `out=` argument: a result written into a tensor that the caller has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...autograd.grad_mode import mode
from ...autograd.views import check_writable
from ...backend.dtype import uint8
from ...backend.registry import backend_for
from ...core.errors import warn_program
from ...core.tensor import Tensor
from .overlap import refuse_overlap

if TYPE_CHECKING:
    from .declare import Op

# Functions whose result is cast to the dtype of `out`, as that of ops which promote their operands is.
_CASTING = frozenset({
    "addcdiv", "addcmul", "addr", "all", "any", "bernoulli", "cat", "cholesky", "cholesky_inverse",
    "cholesky_solve", "clamp_max", "clamp_min", "column_stack", "linalg_cond", "cumprod", "cumsum", "div", "dstack", "linalg_eig", "linalg_eigvals",
    "fft_fft", "fft_fft2", "fft_fftn", "geqrf", "ger", "fft_hfft", "fft_hfft2", "fft_hfftn", "linalg_householder_product", "hstack", "fft_ifft2", "fft_ifftn", "fft_ihfft2",
    "fft_ihfftn", "fft_irfft", "fft_irfft2", "fft_irfftn", "kron", "logical_and", "logical_not", "logical_or", "logical_xor", "linalg_lstsq", "lu",
    "linalg_matrix_power", "linalg_matrix_rank", "max", "mean", "min", "mvlgamma", "nanmean", "nansum", "normal", "normalize", "outer", "linalg_pinv",
    "polygamma", "prod", "fft_rfft", "fft_rfft2", "fft_rfftn", "square", "stack", "std", "sum", "linalg_tensorinv", "linalg_tensorsolve", "var", "vstack",
})  # fmt: skip
_JOINING = frozenset({"cat", "column_stack", "dstack", "hstack", "stack", "vstack"})
_EXACT = frozenset({"where"})
_CHANGING = frozenset({"index_add", "index_copy", "index_reduce", "scatter", "scatter_add", "scatter_reduce"})
"""Functions that return their first operand with changes, which may be written into it as well."""
_BROADCASTING = frozenset({"clamp_max", "clamp_min", "div", "heaviside", "max", "min", "where"})
"""Functions that do not resize an operand, as ops which promote their operands do not."""
_OF_ONE = frozenset({"max", "min"})  # whose (values, indices) are not cast


_COMPUTED_AS_OUT = frozenset({"cumprod", "cumsum", "mean", "nansum", "prod", "sum"})  # in its dtype
_YES_OR_NO = frozenset({"all", "any"})


def compute_as_out(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Ask sums and products for the dtype of `out`, which they are computed in where no other is given."""
    if op.name in _COMPUTED_AS_OUT and isinstance(out, Tensor) and len(args) <= op.params.index("dtype"):
        kwargs.setdefault("dtype", out.dtype)


def _casts(name: str, out: Tensor, op: Op | None, several: bool) -> bool:
    """Whether the result of function `name`, of one or of `several`, is cast to the dtype of `out`."""
    if name in _YES_OR_NO:
        return out.dtype is uint8
    if op is not None and op.promotion is not None:
        return name not in _EXACT
    return name in _CASTING and not (several and name in _OF_ONE)


def write_out(
    name: str, out: Any, result: Any, given: Iterable[Any] = (), op: Op | None = None, warns: bool = True
) -> Any:
    """Write what function `name` returned into `out`, a Tensor or as many Tensors as there are results; return `out`.

    given: the function's arguments, which may not share part of their memory with `out`. op: the op that it is,
    if any. warns: of a size that does not fit.
    """
    if isinstance(result, tuple):
        if not isinstance(out, (tuple, list)) or len(out) != len(result):
            raise TypeError(
                f"{name}(): out= takes a tuple of {len(result)} Tensors, got {type(out).__name__}"
            )
        written = [
            _write(name, o, r, given, op, warns, several=True) for o, r in zip(out, result, strict=True)
        ]
        return type(result)(*written) if hasattr(result, "_fields") else tuple(written)
    return _write(name, out, result, given, op, warns)


def _write(
    name: str,
    out: Any,
    result: Tensor,
    given: Iterable[Any],
    op: Op | None,
    warns: bool,
    several: bool = False,
) -> Tensor:
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if mode.enabled and (result._requires_grad or out._requires_grad):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    check_writable(name, out)
    if result.device != out.device:
        raise RuntimeError(f"{name}(): expected out tensor to be on {result.device}, but got {out.device}")
    if result._array.dtype != out._array.dtype:
        casts = _casts(name, out, op, several)
        narrows = (
            result.dtype.category > out.dtype.category and name != "bernoulli"
        )  # every dtype has 0 and 1
        if narrows and (casts or name in _JOINING):
            kind = TypeError if name in _JOINING else RuntimeError
            want, got = result.dtype.scalar_type, out.dtype.scalar_type
            raise kind(
                f"{name}(): result type {want} can't be cast to the desired output type {got}: Expected result to be "
                f"safely castable from {want} dtype, but got result with dtype {got}"
                if kind is RuntimeError
                else f"torch.cat(): input types can't be cast to the desired output type {got}"
            )
        if not casts:
            raise RuntimeError(
                f"{name}(): Expected out tensor to have dtype {result.dtype.cpp_name}, but got {out.dtype.cpp_name} instead: "
                f"expected scalar type {result.dtype.scalar_type} but found {out.dtype.scalar_type}"
            )
    refuse_overlap(name, out, [value for value in given if value is not out] if name in _CHANGING else given)
    if result._array.shape != out._array.shape:
        broadcasts = name in _BROADCASTING or (op is not None and op.promotion is not None)
        if broadcasts and any(value is out for value in given):
            raise RuntimeError(
                f"{name}(): output with shape {list(out.shape)} doesn't match the broadcast shape {list(result.shape)}"
            )
        resize_out(name, out, result._array.shape, warns)
    out._array[...] = result._array
    out._versions[0] += 1
    return out


def resize_out(name: str, out: Tensor, shape: tuple[int, ...], warns: bool = True) -> None:
    """Give `out` another shape, in its own memory where that has room; warns: if it has elements.

    Without elements it gets memory of its own, also where it is a view: NumPy does not keep the place of an empty one.
    """
    if out._array.shape == shape:
        return
    if not out._array.size:
        out._array = backend_for(out._array).empty(shape, out.dtype)
        return
    if warns:
        warn_program(
            f"{name}(): an output with one or more elements was resized since it had shape {list(out.shape)}, "
            f"which does not match the required output shape {list(shape)}. Give an empty tensor or one "
            "of the right shape."
        )
    out._array = out.detach().resize_(shape)._array
