"""How a reduction combines the ranks' elements: `ReduceOp.SUM` and its like, which are texts as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ..core.tensor import Tensor


class ReduceOp(str):
    """One of sum, avg, product, min, max, band, bor, bxor, and `PREMUL_SUM(factor)`."""

    SUM: ClassVar[ReduceOp]
    AVG: ClassVar[ReduceOp]
    PRODUCT: ClassVar[ReduceOp]
    MIN: ClassVar[ReduceOp]
    MAX: ClassVar[ReduceOp]
    BAND: ClassVar[ReduceOp]
    BOR: ClassVar[ReduceOp]
    BXOR: ClassVar[ReduceOp]
    PREMUL_SUM: ClassVar[ReduceOp]
    RedOpType: ClassVar[type[ReduceOp]]
    plain: str
    """The text alone."""

    def __new__(cls, op: str) -> ReduceOp:
        if not isinstance(op, str):
            raise TypeError(f"ReduceOp(): expected ReduceOp.SUM or its like, got {type(op).__name__}")
        if op not in _KNOWN:
            raise ValueError(f"ReduceOp(): there is no reduction {op!r}, only {', '.join(_KNOWN)}")
        return _KNOWN[op]

    @property
    def name(self) -> str:
        return self.plain.upper()

    @property
    def op(self) -> ReduceOp:
        return self

    @property
    def value(self) -> int:
        return list(_KNOWN).index(self.plain)

    def __call__(self, factor: float | Tensor) -> PremulSum:
        if self is not ReduceOp.PREMUL_SUM:
            raise TypeError(f"{self!r} takes no factor; PREMUL_SUM does")
        return PremulSum(factor)

    def __repr__(self) -> str:
        return f"<RedOpType.{self.name}: {self.value}>"

    def __str__(self) -> str:
        return f"RedOpType.{self.name}"

    __format__ = str.__format__

    def __reduce__(self) -> Any:
        return ReduceOp, (self.plain,)

    def __copy__(self) -> ReduceOp:
        return self

    def __deepcopy__(self, memo: Any) -> ReduceOp:
        return self


_KNOWN: dict[str, ReduceOp] = {}
for _name in ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"):
    _KNOWN[_name] = _op = str.__new__(ReduceOp, _name)
    _op.plain = _name
    setattr(ReduceOp, _name.upper(), _op)
ReduceOp.RedOpType = ReduceOp


class PremulSum(ReduceOp):
    """The sum of what each rank has, times its own `factor` (a number or a Tensor)."""

    factor: float | Tensor

    def __new__(cls, factor: float | Tensor) -> PremulSum:
        made = str.__new__(cls, "premul_sum")
        made.plain, made.factor = "premul_sum", factor
        return made

    def __reduce__(self) -> Any:
        return PremulSum, (self.factor,)


def make_premul_sum(factor: float | Tensor) -> PremulSum:
    """The reduction that multiplies by `factor` before it sums."""
    return PremulSum(factor)
