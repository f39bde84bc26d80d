"""The signatures of functions which are made at declaration: with `out`, and in place.

Those that `inspect` shows are made of valid ones for hundreds of functions at import, and so are not checked again.
"""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from ...core.tensor import Tensor

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
Outs = tuple[Tensor, ...] | list[Tensor] | None
"""What functions of several results take as `out`."""


class TakesOut(Protocol[P, R_co]):
    """What type checkers see of a function that takes the keyword `out` besides the parameters that it is declared with.

    A keyword cannot be added to a `ParamSpec`, so the other arguments of a call with `out` are not checked.
    """

    __name__: str

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, *args: Any, out: Tensor | Outs, **kwargs: Any) -> R_co: ...


_INPUT = Parameter("input", Parameter.POSITIONAL_OR_KEYWORD, annotation="Tensor")
_OUT = Parameter("out", Parameter.KEYWORD_ONLY, default=None, annotation="Tensor | None")
_OUTS = _OUT.replace(annotation="tuple[Tensor, ...] | list[Tensor] | None")


def with_out(declared: Signature) -> Signature:
    """`declared` with the keyword `out`: a tensor, or a tuple of as many as the function returns."""
    return Signature(
        [*declared.parameters.values(), _OUT if declared.return_annotation == "Tensor" else _OUTS],
        return_annotation=declared.return_annotation,
        __validate_parameters__=False,
    )


def in_place(function: Signature) -> Signature:
    """The signature of the in-place form of a function: the tensor that it writes to comes first."""
    _, *others = function.parameters.values()
    return Signature(
        [_INPUT, *(p for p in others if p.name != "out")],
        return_annotation="Tensor",
        __validate_parameters__=False,
    )
