"""The named tuples that functions of several results return; they print as PyTorch's.

torch.return_types.max(
values=tensor([3., 4.]),
indices=tensor([1, 0]))
"""
# ruff: noqa: UP014 - a table with a line for each

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .tensor import Tensor

aminmax = NamedTuple("aminmax", [("min", "Tensor"), ("max", "Tensor")])
cummax = NamedTuple("cummax", [("values", "Tensor"), ("indices", "Tensor")])
cummin = NamedTuple("cummin", [("values", "Tensor"), ("indices", "Tensor")])
frexp = NamedTuple("frexp", [("mantissa", "Tensor"), ("exponent", "Tensor")])
histogram = NamedTuple("histogram", [("hist", "Tensor"), ("bin_edges", "Tensor")])
histogramdd = NamedTuple("histogramdd", [("hist", "Tensor"), ("bin_edges", "tuple[Tensor, ...]")])
kthvalue = NamedTuple("kthvalue", [("values", "Tensor"), ("indices", "Tensor")])
max = NamedTuple("max", [("values", "Tensor"), ("indices", "Tensor")])
median = NamedTuple("median", [("values", "Tensor"), ("indices", "Tensor")])
min = NamedTuple("min", [("values", "Tensor"), ("indices", "Tensor")])
mode = NamedTuple("mode", [("values", "Tensor"), ("indices", "Tensor")])
nanmedian = NamedTuple("nanmedian", [("values", "Tensor"), ("indices", "Tensor")])
sort = NamedTuple("sort", [("values", "Tensor"), ("indices", "Tensor")])
topk = NamedTuple("topk", [("values", "Tensor"), ("indices", "Tensor")])
geqrf = NamedTuple("geqrf", [("a", "Tensor"), ("tau", "Tensor")])
linalg_cholesky_ex = NamedTuple("linalg_cholesky_ex", [("L", "Tensor"), ("info", "Tensor")])
linalg_eig = NamedTuple("linalg_eig", [("eigenvalues", "Tensor"), ("eigenvectors", "Tensor")])
linalg_eigh = NamedTuple("linalg_eigh", [("eigenvalues", "Tensor"), ("eigenvectors", "Tensor")])
linalg_inv_ex = NamedTuple("linalg_inv_ex", [("inverse", "Tensor"), ("info", "Tensor")])
linalg_ldl_factor = NamedTuple("linalg_ldl_factor", [("LD", "Tensor"), ("pivots", "Tensor")])
linalg_ldl_factor_ex = NamedTuple(
    "linalg_ldl_factor_ex", [("LD", "Tensor"), ("pivots", "Tensor"), ("info", "Tensor")]
)
linalg_lstsq = NamedTuple(
    "linalg_lstsq",
    [("solution", "Tensor"), ("residuals", "Tensor"), ("rank", "Tensor"), ("singular_values", "Tensor")],
)
linalg_lu = NamedTuple("linalg_lu", [("P", "Tensor"), ("L", "Tensor"), ("U", "Tensor")])
linalg_lu_factor = NamedTuple("linalg_lu_factor", [("LU", "Tensor"), ("pivots", "Tensor")])
linalg_lu_factor_ex = NamedTuple(
    "linalg_lu_factor_ex", [("LU", "Tensor"), ("pivots", "Tensor"), ("info", "Tensor")]
)
linalg_qr = NamedTuple("linalg_qr", [("Q", "Tensor"), ("R", "Tensor")])
linalg_slogdet = NamedTuple("linalg_slogdet", [("sign", "Tensor"), ("logabsdet", "Tensor")])
linalg_solve_ex = NamedTuple("linalg_solve_ex", [("result", "Tensor"), ("info", "Tensor")])
linalg_svd = NamedTuple("linalg_svd", [("U", "Tensor"), ("S", "Tensor"), ("Vh", "Tensor")])
lu_unpack = NamedTuple("lu_unpack", [("P", "Tensor"), ("L", "Tensor"), ("U", "Tensor")])
qr = NamedTuple("qr", [("Q", "Tensor"), ("R", "Tensor")])
slogdet = NamedTuple("slogdet", [("sign", "Tensor"), ("logabsdet", "Tensor")])
svd = NamedTuple("svd", [("U", "Tensor"), ("S", "Tensor"), ("V", "Tensor")])
triangular_solve = NamedTuple("triangular_solve", [("solution", "Tensor"), ("cloned_coefficient", "Tensor")])


def _new(cls: Any, *fields: Any) -> Any:
    """The fields one by one, or as one sequence."""
    return cls._make(fields[0] if len(fields) == 1 and isinstance(fields[0], Sequence) else fields)


def _repr(self: Any) -> str:
    fields = ",\n".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
    return f"torch.return_types.{type(self).__name__}(\n{fields})"


for _type in [value for value in globals().values() if hasattr(value, "_fields")]:
    _type.__new__, _type.__repr__ = _new, _repr
    _type.__doc__ = f"What `{_type.__name__}` returns: {', '.join(_type._fields)}."
