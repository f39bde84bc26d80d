"""In-place ops: write into a tensor's memory, count the version, and keep the graph right.

How the histories of base and views follow is told in `autograd/views.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np

from ...autograd.accumulate import edge_of, refresh_view
from ...autograd.grad_mode import mode
from ...autograd.views import check_writable, written
from ...backend.registry import backend_for
from ...core.tensor import Tensor, wrap
from ..creation.factories import as_element
from ..indexing.index import (
    index_put,
    is_basic,
    is_mixed,
    raw_index,
    refuse_negative_steps,
    split_mixed,
    subscript,
    with_ellipsis,
)
from .autocast import casting
from .calls import versions_of
from .declare import OPS, Op
from .explain import explain
from .node import OpNode, record
from .signatures import in_place
from .watching import recorders


def inplace(op: Op) -> Callable[..., Tensor]:
    """The in-place form of an op: `x.mul_(y)` for `mul`."""

    def keeps_old(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return 0 in op.plans[_bits(op, args) if op.rules and not kwargs else -1].inputs

    return _inplace(op.name, op.call, keeps_old, op)


def inplace_function(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The in-place form of a function made of ops: `x.addcmul_(a, b)` for `addcmul`."""
    return _inplace(name, function, lambda args, kwargs: True, None)


def _inplace(
    name: str,
    function: Callable[..., Tensor],
    keeps_old: Callable[[tuple[Any, ...], dict[str, Any]], bool],
    op: Op | None,
) -> Callable[..., Tensor]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        recording = mode.enabled and (self._requires_grad or any_requires_grad(args, kwargs))
        check_writable(f"{name}_", self, needs_grad=recording)
        if not recording and op is not None and _computed_in_place(op, self, args, kwargs):
            self._versions[0] += 1
            return self
        if recording:
            # Rules may need the old value, which is about to be overwritten.
            old = (
                wrap(backend_for(self._array).clone(self._array))
                if keeps_old((self, *args), kwargs)
                else self.detach()
            )
            _take_history(old, self)
            result = function(old, *args, **kwargs)
        else:
            result = function(self, *args, **kwargs)
        if result._array.dtype is not self._array.dtype and result.dtype.category > self.dtype.category:
            raise RuntimeError(
                f"{name}_(): result type {result.dtype.name} can't be cast to the desired output type "
                f"{self.dtype.name}"
            )
        if result._array.shape != self._array.shape:
            raise RuntimeError(
                f"{name}_(): output with shape {list(self.shape)} doesn't match the broadcast shape "
                f"{list(result.shape)}"
            )
        if recording and not result._requires_grad:
            raise RuntimeError(f"{name}_(): the derivative is not implemented; do it under torch.no_grad()")
        try:
            self._array[...] = result._array
        except Exception as error:
            raise error if op is None else explain(op, (self,), error) from error
        self._versions[0] += 1
        if recorders:
            recorders[0].on_write(self._array, None, result._array)
        if recording:
            _give_history(self, result)
        return self

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"In-place form of `{name}`."
    method.__module__ = function.__module__
    method.__dict__["__signature__"] = in_place(op.signature if op is not None else signature(function))
    return method


def _computed_in_place(op: Op, target: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Let the kernel write into `target`, if it is one elementary function of floats of one dtype and of numbers.

    False if it is not, or if it fails: then nothing was written.
    """
    array = target._array
    dtype, kind = array.dtype, array.__class__
    kernel = op.kernels[kind]
    if getattr(kernel, "nin", 0) != len(args) + 1 or kwargs or dtype.kind != "f" or casting or recorders:
        return False
    operands = [array]
    for value in args:
        if value.__class__ is not float and value.__class__ is not int:
            value = getattr(value, "_array", None)
            if value is None or value.dtype is not dtype or value.__class__ is not kind:
                return False
        operands.append(value)
    try:
        kernel(*operands, out=array)
    except (TypeError, ValueError, OverflowError):
        return False  # the other way raises an error that names the op and the shapes
    return True


def any_requires_grad(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True when an argument is a Tensor that requires a gradient."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor) and value._requires_grad:
            return True
    return False


def _bits(op: Op, args: tuple[Any, ...]) -> int:
    """Which tensors need a gradient, as a binary number: the place of the op's plan (`declare.Plan`)."""
    tensors = [args[place] if place < len(args) else None for place in op.tensors]
    return sum(1 << k for k, t in enumerate(tensors) if isinstance(t, Tensor) and t._requires_grad)


def _take_history(copy: Tensor, of: Tensor) -> None:
    if of._requires_grad:
        node, nr = edge_of(of)
        assert node is not None
        if of._view is not None and node._tensor_hooks is not None:
            # The gradient of what a view held before goes to its base: hooks on the view do not see it.
            refresh_view(of)
            node, nr = edge_of(of)
            assert node is not None
        copy._grad_fn, copy._output_nr, copy._requires_grad = node, nr, True


def _give_history(target: Tensor, result: Tensor) -> None:
    """`target` now holds what `result` computed; the node must see `target`'s version from here on."""
    node, nr = edge_of(result)
    assert node is not None
    if isinstance(node, OpNode):
        node.replace_output(target)
    written(target, node, nr)


def _store(op: Op, target: Tensor, index: Any, value: Any) -> None:
    """Write a raw array or number into `target`, and count the version."""
    if target._array.dtype.kind == "u" and isinstance(value, int):
        value = as_element(value, target.dtype)
    try:
        target._array[index] = value
    except Exception as error:
        raise explain(op, (target,), error) from error
    target._versions[0] += 1
    if recorders:
        recorders[0].on_write(target._array, index, value)


# -- the in-place ops that are not forms of an op --------------------------------------------


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """`self[index] = value`, under autograd."""
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
    _take_history(before, self)
    if given is not None and given._array.dtype != self._array.dtype:
        given = OPS["cast"].call(given, self.dtype)
    array = value if given is None else given._array
    _store(op, self, raw, array)
    out = wrap(self._array)
    out._versions = self._versions
    record(op, (before, given), (before._array, raw, array), out, watched=versions_of([index]))
    _give_history(self, out)


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Overwrite with `src`, broadcast, converted and moved as needed."""
    if isinstance(src, Tensor) and src.device != self.device:
        src = src.to(self.device)
    setitem(self, Ellipsis, src)
    return self


def fill_(self: Tensor, value: Any) -> Tensor:
    """Overwrite with one value."""
    if value.__class__ is Tensor or (self._requires_grad and mode.enabled):
        setitem(self, Ellipsis, value)
    else:
        check_writable("fill_", self)
        _store(index_put.op, self, Ellipsis, value)  # type: ignore[attr-defined]
    return self


def zero_(self: Tensor) -> Tensor:
    """Overwrite with zeros."""
    return fill_(self, 0)


def detach_(self: Tensor) -> Tensor:
    """Forget the history; the tensor becomes a leaf."""
    if self._view is not None and self._requires_grad:
        raise RuntimeError("Can't detach views in-place. Use detach() instead.")
    self._grad_fn, self._output_nr, self._requires_grad = None, 0, False
    return self
