"""The signatures that `inspect` shows of functions which are made at declaration: with `out`, and in place.

They are made of valid ones for hundreds of functions at import, and so are not checked again.
"""

from __future__ import annotations

from inspect import Parameter, Signature

_SELF = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD, annotation="Tensor")
_OUT = Parameter("out", Parameter.KEYWORD_ONLY, default=None, annotation="Tensor | None")
_OUTS = _OUT.replace(annotation="Any")


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
        [_SELF, *(p for p in others if p.name != "out")],
        return_annotation="Tensor",
        __validate_parameters__=False,
    )
