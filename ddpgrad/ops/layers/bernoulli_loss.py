"""Binary cross entropy, elementwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend.registry import backend_for
from ...core.tensor import Tensor
from ..dispatch.declare import op

# Where PyTorch stops, so that a wrong certainty costs much, but not infinitely much.
_LOWEST_LOG = -100.0
_SMALLEST_SLOPE = 1e-12


def _adapt(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    if input.dtype is not target.dtype:
        raise RuntimeError(
            f"binary_cross_entropy(): found dtype {target.dtype.name} of target but expected {input.dtype.name}, that of input"
        )
    for name, tensor in (("input", input), ("target", target)):
        array = tensor._array
        if not isinstance(array, np.ndarray) or not array.size:
            continue
        F = backend_for(array)
        least, most = F.amin(array), F.amax(array)
        if not 0 <= least <= most <= 1:
            raise RuntimeError(
                f"binary_cross_entropy(): all elements of {name} should be between 0 and 1, got values from {least} "
                f"to {most}; for scores of any size use binary_cross_entropy_with_logits"
            )
    return input, target


def _log(F: Any, p: Any) -> Any:
    """log(p), -100 where that is smaller (at 0 no infinity is computed on the way)."""
    positive = p > 0
    safe = F.where(positive, p, F.full_like(p, 1))
    return F.where(positive, F.maximum(F.log(safe), F.full_like(p, _LOWEST_LOG)), F.full_like(p, _LOWEST_LOG))


@op(
    grads={
        "input": lambda F, g, input, target: (
            g * (input - target) / F.maximum(input * (1 - input), F.full_like(input, _SMALLEST_SLOPE))
        ),
        "target": lambda F, g, input: g * (_log(F, 1 - input) - _log(F, input)),
    },
    adapt=_adapt,
    samples=lambda rng: [((rng.uniform(0.1, 0.9, (3, 4)), rng.uniform(0, 1, (3, 4))), {})],
    reference=lambda x, t: -t * np.log(x) - (1 - t) * np.log(1 - x),
    method=False,
    grad_name="BinaryCrossEntropyBackward0",
)
def bernoulli_loss(F: Any, input: Tensor, target: Tensor) -> Tensor:
    """-target log(input) - (1 - target) log(1 - input); logarithms stop at -100."""
    return -(target * _log(F, input) + (1 - target) * _log(F, 1 - input))
