"""The `out=` argument: a result written into a tensor that the caller has."""

from __future__ import annotations

import warnings
from typing import Any

from ...autograd.grad_mode import mode
from ...autograd.views import check_writable
from ...backend.registry import backend_for
from ...core.tensor import Tensor


def write_out(name: str, out: Any, result: Any) -> Any:
    """Write what function `name` returned into `out`, a Tensor or as many Tensors as there are results; return `out`."""
    if isinstance(result, tuple):
        if not isinstance(out, (tuple, list)) or len(out) != len(result):
            raise TypeError(
                f"{name}(): out= takes a tuple of {len(result)} Tensors, got {type(out).__name__}"
            )
        written = [write_out(name, o, r) for o, r in zip(out, result, strict=True)]
        return type(result)(*written) if hasattr(result, "_fields") else tuple(written)
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
    if result.dtype.category > out.dtype.category:
        raise RuntimeError(
            f"{name}(): result type {result.dtype.name} can't be cast to the desired output type {out.dtype.name}"
        )
    if result._array.shape == out._array.shape:
        out._array[...] = result._array
    elif not out._array.size:
        out._array = backend_for(out._array).cast(result._array, out.dtype)
        if out._array is result._array:
            out._array = result._array.copy()
    else:
        warnings.warn(
            f"{name}(): an output with one or more elements was resized since it had shape {list(out.shape)}, "
            f"which does not match the required output shape {list(result.shape)}. Give an empty tensor or one "
            "of the right shape.",
            stacklevel=3,
        )
        out._array = out.detach().resize_(result.shape)._array  # its memory, where that has room
        out._array[...] = result._array
    out._versions[0] += 1
    return out
