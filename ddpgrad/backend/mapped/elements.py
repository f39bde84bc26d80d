"""Rules of kernels that go element by element, or along dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.errors import NotMapped
from ..elementary.arithmetic import composed, guarded, ufuncs
from ..elementary.special import special
from .array import MappedArray, aligned, count_of
from .rules import RULES, Rule, each, later, rule

Array = Any


def _broadcasting(name: str) -> Rule:
    return lambda H, *args: getattr(H, name)(*aligned(args))


def elementwise(name: str) -> Rule:
    """The rule of a kernel whose arrays all have one shape."""
    return lambda H, *args: getattr(H, name)(*_of_one_shape(H, args))


def _of_one_shape(H: Any, args: Sequence[Any]) -> list[Any]:
    values = aligned(args)
    shapes = {value.shape for value in values if hasattr(value, "strides")}
    if len(shapes) > 1:
        shape = np.broadcast_shapes(*shapes)
        values = [H.clone(H.expand(v, shape)) if hasattr(v, "strides") else v for v in values]
    return values


OF_ELEMENTS = "ddpgrad.ops.elementwise."
"""The package whose portable bodies go element by element, but for those that have a rule of their own."""

for _family in (ufuncs, guarded, composed, special):
    RULES |= {name: _broadcasting(name) for name in _family(np)}
for _name in ("by_a_number", "contiguous", "isin"):
    del RULES[_name]
RULES |= {
    name: elementwise(name) for name in ("bernoulli_loss", "huber", "huber_backward", "dropout_backward")
}


@rule("clone")
def _clone(H: Any, input: MappedArray, memory_format: Any = None) -> Any:
    if memory_format is not None:
        raise NotMapped
    return H.clone(input.whole)


def _along(name: str, place: int) -> Rule:
    """The rule of a kernel whose argument at `place` is a dimension, or several; those before are arrays or numbers."""

    def made(H: Any, *args: Any) -> Any:
        arrays = [a for a in args[:place] if hasattr(a, "strides")]
        ndim = arrays[0].ndim
        if not ndim or any(a.ndim != ndim for a in arrays):
            raise NotMapped  # what its dimensions are is for each kernel to say
        wholes = each(args[:place], count_of(arrays))
        dim = later(args[place] if len(args) > place else None, ndim)
        return getattr(H, name)(*wholes, dim, *args[place + 1 :])

    return made


_DIMENSION_SECOND = (
    "all", "amax", "amin", "any", "argsort", "count_nonzero", "cummax_values", "cummin_values", "cumprod", "cumsum", "fft_c2c",
    "fft_c2r", "fft_r2c", "flip", "glu", "kthvalue_values", "log_softmax", "logcumsumexp", "logsumexp", "max_values", "mean",
    "median_values", "min_values", "mode_values", "nanmedian_values", "nansum", "prod", "resample", "resample_transposed",
    "running_position", "softmax", "sort_values", "squeeze", "std", "std_mean", "sum", "topk_values", "unfold", "var", "var_mean",
)  # fmt: skip
RULES |= {name: _along(name, 1) for name in _DIMENSION_SECOND}
RULES |= {name: _along(name, 2) for name in (
    "glu_backward", "log_softmax_backward", "softmax_backward", "sums_from_the_end", "vector_norm",
)}  # fmt: skip


def _extreme(name: str) -> Rule:
    def made(H: Any, input: MappedArray, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None and keepdim:
            raise NotMapped
        whole = input.whole.reshape(input.count, -1) if dim is None else input.whole
        return getattr(H, name)(whole, 1 if dim is None else later(dim, input.ndim), keepdim)

    return made


RULES |= {name: _extreme(name) for name in ("argmax", "argmin")}
