"""What `fully_shard` is told: types of 16 bits, and where parts lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of a group; None: the parameters' own.

    param_dtype: in which parameters are gathered and computed with, and gradients made. reduce_dtype: in which
    gradients are averaged over the ranks; None: `param_dtype`. output_dtype: of the tensors that forward returns.
    cast_forward_inputs: convert the floating-point tensors among forward's arguments to `param_dtype`.
    Parts, their gradients and the optimizer's state keep the parameters' own dtype.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Parts lie where the parameters lay."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Rows, their gradients and the optimizer's state lie in host memory, and whole parameters on the GPU that computes.

    Which is the one that the parameters lie on, or for parameters on the CPU the current one of a mesh of GPUs, where buffers go
    as well. The optimizer computes on the CPU. pin_memory: without effect.
    """

    pin_memory: bool = True
