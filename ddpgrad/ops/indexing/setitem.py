"""Assignment into a tensor: `x[index] = value`, `copy_`, `fill_` and `zero_`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...autograd.grad_mode import mode
from ...autograd.views import check_writable
from ...backend.dtype import bfloat16, float16
from ...backend.registry import SparseArray, backend_for
from ...core.modes import recorders
from ...core.overrides import ask, is_overridden, overriding
from ...core.tensor import Tensor, wrap
from ..creation.factories import as_element
from ..dispatch.calls import versions_of
from ..dispatch.declare import OPS, Op
from ..dispatch.explain import explain
from ..dispatch.inplace import give_history, take_history
from ..dispatch.node import record
from ..dispatch.overlap import refuse_overlap
from .index import index_put, subscript
from .raw_index import (
    for_mask,
    is_basic,
    is_mixed,
    raw_index,
    refuse_negative_steps,
    split_mixed,
    with_ellipsis,
)


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """`self[index] = value`, under autograd."""
    if overriding and is_overridden((self, index, value), {}):
        ask(Tensor.__setitem__, (self, index, value), {})
        return
    raw = raw_index(self, index)
    refuse_negative_steps(raw)
    if is_mixed(raw):
        first, raw = split_mixed(raw)
        self, index = subscript(self, first), raw
    elif is_basic(raw):
        raw = with_ellipsis(raw)
    check_writable(
        "index_put_",
        self,
        raw if is_basic(raw) else Ellipsis,
        isinstance(value, Tensor) and value._requires_grad,
    )
    if not isinstance(value, (Tensor, bool, int, float, complex)):
        if not isinstance(value, (np.generic, np.ndarray)):
            raise TypeError(
                f"can't assign a {type(value).__name__} to a tensor of {self.dtype.name}: make a tensor of it first"
            )
        value = wrap(backend_for(self._array).asarray(np.asarray(value), dtype=self.dtype))
    given = value if isinstance(value, Tensor) else None
    if given is not None and given.ndim == 0 and given._array.__class__ is not self._array.__class__:
        given = given.to(self.device)  # a number in a tensor may come from another device
    if given is not None and given._versions is self._versions:
        if is_basic(raw):
            # NumPy reads what it broadcasts before it writes, and PyTorch does not look into it.
            if given._array.size == (region := self._array[raw]).size:
                refuse_overlap("copy_", self, (given,), region)
        else:
            refuse_overlap("index_put", self, (given,))
    if given is not None and given._array.dtype != self._array.dtype and not is_basic(raw):
        mask = raw[0] if isinstance(raw, tuple) and len(raw) == 1 else raw
        if given._array.size != 1 or getattr(mask, "dtype", None) != np.bool_:
            raise RuntimeError(
                f"Index put requires the source and destination dtypes match, got {self.dtype} for the destination and "
                f"{given.dtype} for the source: convert one with Tensor.to(dtype)"
            )
    recording = (
        mode.enabled
        and (self._requires_grad or (given is not None and given._requires_grad))
        and self.dtype.category > 1  # no gradient passes through integers
    )
    op: Op = index_put.op  # type: ignore[attr-defined]
    if not recording:
        _store(op, self, raw, value if given is None else given._array)
        return
    before = self.detach()
    take_history(before, self)
    if given is not None and given._array.dtype != self._array.dtype:
        given = OPS["cast"].call(given, self.dtype)
    array = value if given is None else given._array
    _store(op, self, raw, array)
    out = wrap(self._array)
    out._versions = self._versions
    record(op, (before, given), (before._array, raw, array), out, watched=versions_of([index]))
    give_history(self, out)


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Overwrite with `src`, broadcast, converted and moved as needed."""
    if overriding and is_overridden((self, src), {}):
        return ask(Tensor.copy_, (self, src, non_blocking), {})
    if isinstance(src, Tensor) and src.device != self.device:
        src = src.to(self.device, non_blocking=non_blocking)
    if isinstance(src, Tensor) and isinstance(src._array, SparseArray) is not isinstance(
        self._array, SparseArray
    ):
        raise RuntimeError(
            f"copy_() between dense and sparse Tensors is not implemented! Found self type = {self.type()} and src type "
            f"= {src.type()}"
        )
    if isinstance(src, Tensor) and src.ndim > self.ndim:
        raise RuntimeError(
            f"copy_(): output with shape {list(self.shape)} doesn't match the broadcast shape {list(src.shape)}"
        )
    setitem(self, Ellipsis, src)
    return self


def fill_(input: Tensor, value: Any) -> Tensor:
    """Overwrite with one value."""
    if overriding and is_overridden((input, value), {}):
        return ask(Tensor.fill_, (input, value), {})
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions."
            )
    elif not isinstance(value, (bool, int, float, complex, np.generic)):
        raise TypeError(f"fill_(): argument 'value' (position 1) must be Number, not {type(value).__name__}")
    elif not isinstance(value, (int, float)) or not 0 <= value <= 127:  # which fits everywhere
        as_element(value, input.dtype)  # which refuses what does not fit
    if value.__class__ is Tensor or (input._requires_grad and mode.enabled):
        setitem(input, Ellipsis, value)
    else:
        check_writable("fill_", input, None)
        store(input, value)
    return input


def zero_(input: Tensor) -> Tensor:
    """Overwrite with zeros."""
    if overriding and is_overridden((input,), {}):
        return ask(Tensor.zero_, (input,), {})
    return fill_(input, 0)


def store(target: Tensor, value: Any) -> None:
    """Overwrite `target`, which may be written to, with a raw array or a number, without history."""
    _store(index_put.op, target, Ellipsis, value)  # type: ignore[attr-defined]


def _store(op: Op, target: Tensor, index: Any, value: Any) -> None:
    """Write a raw array or number into `target`, and count the version."""
    kind = value.__class__
    if ((kind is float or kind is int) and not 0 <= value <= 127) or kind is complex:
        wanted = target.dtype
        if wanted is not float16 and wanted is not bfloat16:  # which take what is too large as infinite
            value = as_element(value, wanted)
    try:
        if index is Ellipsis and target._array.__class__ is np.ndarray:
            backend_for(target._array).overwrite(target._array, value)
        else:
            target._array[index] = for_mask(index, value)
    except Exception as error:
        raise explain(op, (target, index), error) from error
    target._versions[0] += 1
    if recorders:
        recorders[0].on_write(target._array, index, value)
