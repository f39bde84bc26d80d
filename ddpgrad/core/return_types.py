"""The named tuples that functions of several results return; they print as PyTorch's.

torch.return_types.max(
values=tensor([3., 4.]),
indices=tensor([1, 0]))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .tensor import Tensor


class aminmax(NamedTuple):
    min: Tensor
    max: Tensor


class cummax(NamedTuple):
    values: Tensor
    indices: Tensor


class cummin(NamedTuple):
    values: Tensor
    indices: Tensor


class frexp(NamedTuple):
    mantissa: Tensor
    exponent: Tensor


class histogram(NamedTuple):
    hist: Tensor
    bin_edges: Tensor


class histogramdd(NamedTuple):
    hist: Tensor
    bin_edges: tuple[Tensor, ...]


class kthvalue(NamedTuple):
    values: Tensor
    indices: Tensor


class max(NamedTuple):
    values: Tensor
    indices: Tensor


class median(NamedTuple):
    values: Tensor
    indices: Tensor


class min(NamedTuple):
    values: Tensor
    indices: Tensor


class mode(NamedTuple):
    values: Tensor
    indices: Tensor


class nanmedian(NamedTuple):
    values: Tensor
    indices: Tensor


class sort(NamedTuple):
    values: Tensor
    indices: Tensor


class topk(NamedTuple):
    values: Tensor
    indices: Tensor


class geqrf(NamedTuple):
    a: Tensor
    tau: Tensor


class linalg_cholesky_ex(NamedTuple):
    L: Tensor
    info: Tensor


class linalg_eig(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class linalg_eigh(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class linalg_inv_ex(NamedTuple):
    inverse: Tensor
    info: Tensor


class linalg_ldl_factor(NamedTuple):
    LD: Tensor
    pivots: Tensor


class linalg_ldl_factor_ex(NamedTuple):
    LD: Tensor
    pivots: Tensor
    info: Tensor


class linalg_lstsq(NamedTuple):
    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class linalg_lu(NamedTuple):
    P: Tensor
    L: Tensor
    U: Tensor


class linalg_lu_factor(NamedTuple):
    LU: Tensor
    pivots: Tensor


class linalg_lu_factor_ex(NamedTuple):
    LU: Tensor
    pivots: Tensor
    info: Tensor


class linalg_qr(NamedTuple):
    Q: Tensor
    R: Tensor


class linalg_slogdet(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class linalg_solve_ex(NamedTuple):
    result: Tensor
    info: Tensor


class linalg_svd(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


class lu_unpack(NamedTuple):
    P: Tensor
    L: Tensor
    U: Tensor


class qr(NamedTuple):
    Q: Tensor
    R: Tensor


class slogdet(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class svd(NamedTuple):
    U: Tensor
    S: Tensor
    V: Tensor


class triangular_solve(NamedTuple):
    solution: Tensor
    cloned_coefficient: Tensor


def _new(cls: Any, *fields: Any) -> Any:
    """The fields one by one, or as one sequence."""
    return cls._make(fields[0] if len(fields) == 1 and isinstance(fields[0], Sequence) else fields)


def _repr(self: Any) -> str:
    fields = ",\n".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
    return f"torch.return_types.{type(self).__name__}(\n{fields})"


for _type in [value for value in globals().values() if hasattr(value, "_fields")]:
    _type.__new__, _type.__repr__ = _new, _repr
    _type.__doc__ = f"What `{_type.__name__}` returns: {', '.join(_type._fields)}."
