"""The named tuples that functions of several results return; they print as PyTorch's.

torch.return_types.max(
values=tensor([3., 4.]),
indices=tensor([1, 0]))
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any


class _Printed:
    """Prints a named tuple as PyTorch does; takes its fields one by one or as one sequence."""

    __slots__ = ()
    _fields: tuple[str, ...]

    def __new__(cls, *fields: Any) -> Any:
        (only,) = fields if len(fields) == 1 else (None,)
        return super().__new__(cls, *(only if isinstance(only, Sequence) else fields))

    def __repr__(self) -> str:
        fields = ",\n".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"torch.return_types.{type(self).__name__}(\n{fields})"


def named(name: str, *fields: str) -> Any:
    """A class of named tuples that prints as `torch.return_types.<name>`."""
    body = {
        "__slots__": (),
        "__module__": __name__,
        "__doc__": f"What `{name}` returns: {', '.join(fields)}.",
    }
    return type(name, (_Printed, namedtuple(name, fields)), body)


aminmax = named("aminmax", "min", "max")
cummax = named("cummax", "values", "indices")
cummin = named("cummin", "values", "indices")
frexp = named("frexp", "mantissa", "exponent")
histogram = named("histogram", "hist", "bin_edges")
histogramdd = named("histogramdd", "hist", "bin_edges")
kthvalue = named("kthvalue", "values", "indices")
max = named("max", "values", "indices")
median = named("median", "values", "indices")
min = named("min", "values", "indices")
mode = named("mode", "values", "indices")
nanmedian = named("nanmedian", "values", "indices")
sort = named("sort", "values", "indices")
topk = named("topk", "values", "indices")

geqrf = named("geqrf", "a", "tau")
linalg_cholesky_ex = named("linalg_cholesky_ex", "L", "info")
linalg_eig = named("linalg_eig", "eigenvalues", "eigenvectors")
linalg_eigh = named("linalg_eigh", "eigenvalues", "eigenvectors")
linalg_inv_ex = named("linalg_inv_ex", "inverse", "info")
linalg_ldl_factor = named("linalg_ldl_factor", "LD", "pivots")
linalg_ldl_factor_ex = named("linalg_ldl_factor_ex", "LD", "pivots", "info")
linalg_lstsq = named("linalg_lstsq", "solution", "residuals", "rank", "singular_values")
linalg_lu = named("linalg_lu", "P", "L", "U")
linalg_lu_factor = named("linalg_lu_factor", "LU", "pivots")
linalg_lu_factor_ex = named("linalg_lu_factor_ex", "LU", "pivots", "info")
linalg_qr = named("linalg_qr", "Q", "R")
linalg_slogdet = named("linalg_slogdet", "sign", "logabsdet")
linalg_solve_ex = named("linalg_solve_ex", "result", "info")
linalg_svd = named("linalg_svd", "U", "S", "Vh")
lu_unpack = named("lu_unpack", "P", "L", "U")
qr = named("qr", "Q", "R")
slogdet = named("slogdet", "sign", "logabsdet")
svd = named("svd", "U", "S", "V")
triangular_solve = named("triangular_solve", "solution", "cloned_coefficient")
