"""Strided views: `as_strided`, `unfold`, and what their gradients share; methods that give a tensor other sizes or memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.views import check_writable
from ...backend.dtype import DType
from ...backend.elementary.shape import bytes_before, owner_of
from ...core.modes import inference
from ...core.size import as_ints, channels_last, channels_last_3d, contiguous_format, preserve_format
from ...core.tensor import Size, Tensor
from ..dispatch.declare import op, primitive
from ..dispatch.samples import calls
from ..dispatch.tensor_function import tensor_function
from ..dispatch.views import owned
from ..dispatch.vocabulary import VOCABULARY as F
from ..elementwise import unary
from ..indexing.setitem import copy_
from ..reduction.reduce import wrap_dim
from .diagonal import require_shape
from .shape import constant_pad, infer_size

if TYPE_CHECKING:
    from ...core.storage import TypedStorage, UntypedStorage

Ints = Sequence[int]


def places(size: Ints, stride: Ints, offset: int = 0) -> np.ndarray:
    """Where the elements of a strided tensor lie in memory, in elements from its start."""
    found = np.asarray(offset, dtype=np.int64)
    for n, step in zip(size, stride, strict=True):
        found = found[..., None] + np.arange(n) * step
    return found


def contiguous_strides(size: Ints, order: Ints | None = None) -> tuple[int, ...]:
    """Steps in elements of a tensor of `size` whose elements lie in order: in that of its dimensions, or in `order`."""
    steps, step = [0] * len(size), 1
    for dim in reversed(range(len(size)) if order is None else order):
        steps[dim] = step
        step *= max(size[dim], 1)
    return tuple(steps)


def _strided_rule(F: Any, g: Any, input_shape: Any, size: Ints, stride: Ints, delta: int, own: Ints) -> Any:
    to, count = places(size, stride, delta), math.prod(input_shape)
    if not to.size or not count:
        return F.new_zeros(g, tuple(input_shape))
    if tuple(own) == contiguous_strides(input_shape) and 0 <= to.min() <= to.max() < count:
        memory = F.place(F.reshape(g, (-1,)), (count,), F.asarray(to.reshape(-1)))
        return F.reshape(memory, tuple(input_shape))
    back = places(input_shape, own)
    low = min(int(to.min()), int(back.min()))
    length = max(int(to.max()), int(back.max())) - low + 1
    memory = F.place(F.reshape(g, (-1,)), (length,), F.asarray(to.reshape(-1) - low))
    counts = np.bincount(back.reshape(-1) - low, minlength=length)
    if counts.max() > 1:  # where elements of the input share a place, each gets its part
        memory = memory / F.cast(F.asarray(np.maximum(counts, 1)), memory.dtype)
    return F.reshape(F.getitem(memory, F.asarray(back.reshape(-1) - low)), tuple(input_shape))


@primitive(
    grads={"input": _strided_rule},
    view=True,
    samples=lambda rng: [
        ((rng.standard_normal((3, 4)), (2, 2), (4, 1), 1, (4, 1)), {}),
        ((rng.standard_normal((3, 4)), (3, 5), (1, 2), 0, (4, 1)), {}),
        ((rng.standard_normal((3, 4)), (), (), 2, (4, 1)), {}),
    ],
    reference=lambda x, size, stride, delta, own: x.reshape(-1)[places(size, stride, delta)],
    method=False,
    grad_name="AsStridedBackward0",
)
def strided(F: Any, input: Tensor, size: Ints, stride: Ints, delta: int, own: Ints) -> Tensor:
    """A view with these sizes and steps that starts `delta` elements after `input`, whose steps are `own`."""
    ...


@tensor_function()
def as_strided(input: Tensor, size: Ints, stride: Ints, storage_offset: int | None = None) -> Tensor:
    """A view of the memory under `input`: element (i, j, …) lies at storage_offset + i * stride[0] + j * stride[1] + …"""
    size, stride = as_ints("as_strided", size), as_ints("as_strided", stride)
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if stride and min(stride) < 0:
        raise RuntimeError(
            f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}"
        )
    array = getattr(input._array, "first", input._array)  # of the examples of a vmap
    owner = owner_of(array)
    start = bytes_before(array, owner) // array.itemsize
    offset = start if storage_offset is None else int(storage_offset)
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    length = owner.nbytes // array.itemsize
    needed = offset + 1 + sum([(n - 1) * step for n, step in zip(size, stride, strict=True)])
    if 0 not in size and needed > length and not input.is_meta:  # where PyTorch lets the memory grow
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} requiring a storage of "
            f"{needed} elements are out of bounds for storage of {length} elements"
        )
    out = strided(input, size, stride, offset - start, input.stride())
    if input._view is not None and out._view is not None:
        # It may show what `input` does not: a write through it reaches the base directly.
        base = out._view.base
        step = (strided, (size, stride, offset - base.storage_offset(), base.stride()))
        out._view = out._view._replace(steps=(step,))
    return out


@tensor_function()
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Ints, stride: Ints, storage_offset: int | None = None
) -> Tensor:
    """A copy of `input` with `src` written where `as_strided` of it points."""
    out = unary.clone(input) if input.is_contiguous() else input.contiguous()
    region = as_strided(out, size, stride, storage_offset)
    require_shape("as_strided_scatter", region, src)
    copy_(region, src)
    return out


def _unfolded(shape: Ints, dimension: int, size: int, step: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Size and steps (over a contiguous input) of `unfold`."""
    own = contiguous_strides(shape)
    if not shape:
        return (size,), (1,)
    count = (shape[dimension] - size) // step + 1
    sizes = (*shape[:dimension], count, *shape[dimension + 1 :], size)
    return sizes, (*own[:dimension], own[dimension] * step, *own[dimension + 1 :], own[dimension])


def _adapt_unfold(input: Tensor, dimension: int, size: int, step: int) -> tuple[Any, ...]:
    dimension = wrap_dim("unfold", dimension, input.ndim)
    length = input.shape[dimension] if input.ndim else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > length:
        raise RuntimeError(f"maximum size for tensor at dimension {dimension} is {length} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    return input, dimension, int(size), int(step)


def _unfold_rule(F: Any, g: Any, input_shape: Any, dimension: int, size: int, step: int) -> Any:
    sizes, strides = _unfolded(input_shape, dimension, size, step)
    return _strided_rule(F, g, input_shape, sizes, strides, 0, contiguous_strides(input_shape))


@primitive(
    grads={"input": _unfold_rule},
    adapt=_adapt_unfold,
    view=True,
    samples=calls((0, 2, 1), (2, 2, 2), (-1, 3, 1), (1, 1, 2)),
    reference=lambda x, d, size, step: np.lib.stride_tricks.sliding_window_view(x, size, d)[
        (slice(None),) * (d % x.ndim) + (slice(None, None, step),)
    ],
)
def unfold(F: Any, input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size` along `dimension`, `step` apart, with their elements as the last dimension; a view."""
    ...


@op(
    adapt=lambda input, dtype: (input, _require_readable_as(input, dtype)),
    view=True,
    samples=lambda rng: [((rng.standard_normal((2, 3)), dtype), {}) for dtype in ("int64", "int32")],
    reference=lambda x, dtype: x.view(dtype),
    method=False,
)
def view_dtype(F: Any, input: Tensor, dtype: Any) -> Tensor:
    """The same bytes read as another dtype; the last dimension grows or shrinks with the size of an element."""
    return input.view(dtype)


def _require_readable_as(input: Tensor, dtype: Any) -> np.dtype[Any]:
    kind = dtype.numpy if isinstance(dtype, DType) else np.dtype(dtype)
    mine = input.element_size()
    if mine == kind.itemsize:
        return kind
    if not input.ndim:
        raise RuntimeError(
            f"self.dim() cannot be 0 to view {input.dtype!r} as {dtype!r} (different element sizes)"
        )
    if input.stride(-1) != 1:
        raise RuntimeError(
            f"self.stride(-1) must be 1 to view {input.dtype!r} as {dtype!r} (different element sizes), but got "
            f"{input.stride(-1)}"
        )
    if kind.itemsize > mine:
        few = kind.itemsize // mine
        counts = {"size(-1)": input.shape[-1], "storage_offset()": storage_offset(input)}
        counts |= {f"stride({i})": input.stride(i) for i, n in enumerate(input.shape[:-1]) if n > 1}
        for what, count in counts.items():
            if count % few:
                raise RuntimeError(
                    f"self.{what} must be divisible by {few} to view {input.dtype!r} as {dtype!r} (different element "
                    f"sizes), but got {count}"
                )
    return kind


def _view(input: Tensor, *size: Any, dtype: Any = None, **named: Any) -> Tensor:
    """The same memory in another shape, or read as another dtype; an error where that needs a copy."""
    if dtype is None:
        if not size or size[0].__class__ is not DType:
            return F.view(input, *size, **named)
        dtype = size[0]
    return owned(view_dtype(input.detach(), dtype))


def _adapt_view(input: Tensor, shape: Sequence[Any]) -> tuple[Any, ...]:
    sizes = infer_size("view", shape, input)
    array = input._array
    if not array.flags.c_contiguous and array.size:
        probe = array.reshape(sizes)
        if not _shares(probe, array):
            raise RuntimeError(
                f"view size is not compatible with input tensor's size and stride (at least one dimension spans "
                f"across two contiguous subspaces): {list(input.shape)} with strides {input.stride()} as "
                f"{list(sizes)}. Use .reshape(...) instead."
            )
    return input, sizes


def _shares(a: Any, b: Any) -> bool:
    owner = a.base if a.base is not None else a
    return owner is (b.base if b.base is not None else b)


@primitive(
    public=_view,
    grads={"input": lambda F, g, input_shape: F.reshape(g, input_shape)},
    adapt=_adapt_view,
    view=True,
    samples=calls(((4, 6),), ((-1,),)),
    reference=np.reshape,
)
def view(F: Any, input: Tensor, *size: Any) -> Tensor:
    """The same memory in another shape; an error where that needs a copy."""
    ...


@op(view=True, grads={"input": lambda F, g: g}, samples=calls(()), reference=lambda x: x, method=False)
def alias(F: Any, input: Tensor) -> Tensor:
    """The same memory as another tensor."""
    return input


def storage_offset(input: Tensor) -> int:
    """Where `input` starts in its storage, in elements."""
    array = input._array
    return bytes_before(array, owner_of(array)) // array.itemsize


def require_given(name: str, argument: str, values: tuple[Any, ...]) -> None:
    if not values:
        raise TypeError(f'{name}() missing 1 required positional arguments: "{argument}"')


def resize_(self: Tensor, *sizes: Any, size: Any = None, memory_format: Any = None) -> Tensor:
    """Another shape in place; the memory is kept where it is large enough, else new elements are undefined."""
    if self._requires_grad and not inference.on:
        raise RuntimeError("cannot resize variables that require grad")
    sizes = sizes if size is None else (size,)
    require_given("resize_", "size", sizes)
    size = Size(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)
    if memory_format is preserve_format:
        raise RuntimeError("resize_(): Unsupported memory format Preserve")
    order = None if memory_format is None else memory_format.order(len(size))
    if size == self._array.shape and order is None:
        return self
    room = self.untyped_storage().nbytes() // self.element_size() - self.storage_offset()
    memory = self.detach()
    if size.numel() > room:
        fresh = unary.clone(as_strided(memory, (room,), (1,)))
        memory = constant_pad(fresh, ((0, size.numel() - room),), 0)
    self._array = as_strided(memory, size, contiguous_strides(size, order))._array
    self._versions[0] += 1
    return self


def resize_as_(input: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """The shape of `the_template`, in place; of a sparse tensor without elements to that of another."""
    if not the_template.is_sparse:
        if memory_format is preserve_format:
            images = (f for f in (channels_last, channels_last_3d) if f.rank == the_template.ndim)
            memory_format = next((f for f in images if the_template.is_contiguous(f)), contiguous_format)
        return resize_(input, the_template.shape, memory_format=memory_format)
    pattern = the_template._array
    if not input.is_sparse or input._nnz():
        raise RuntimeError("resize_as_(): to the shape of a sparse tensor comes only one without elements")
    input._array = pattern.like(pattern.indices[:, :0], pattern.values[:0], pattern.shape)
    input._versions[0] += 1
    return input


def set_(
    self: Tensor,
    source: Tensor | TypedStorage | UntypedStorage | None = None,
    storage_offset: Any = None,
    size: Any = None,
    stride: Any = None,
) -> Tensor:
    """Share the memory, and take the shape, of `source` (of a strided part of it); without one, have no element."""
    check_writable("set_", self)
    taken: Any = source if source is None or isinstance(source, Tensor) else source.as_tensor(self.dtype)
    if taken is None:
        taken = self.new_empty(0)
    if taken.dtype is not self.dtype:
        raise RuntimeError(
            f"set_(): the source has dtype {taken.dtype.name}, the tensor {self.dtype.name}; they must be the same"
        )
    if size is not None:
        size = (size,) if isinstance(size, int) else tuple(size)
        steps = stride or contiguous_strides(size)
        taken = as_strided(taken, size, steps, storage_offset or 0)
    self._array, self._versions = taken._array, taken._versions
    self._versions[0] += 1
    self._accumulator = None  # graphs that were made before lead to what it was
    return self
