"""What makes nested tensors: lists of tensors, rows of one, offsets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

from ... import promote_types
from ... import tensor as of_numbers
from ...core.size import Layout, jagged, strided
from ...core.tensor import Tensor
from .tensor import NestedTensor


def as_nested_tensor(
    ts: Any, dtype: Any = None, device: Any = None, layout: Layout | None = None
) -> NestedTensor:
    """The tensors of a list, or along the first dimension of one tensor, as one; gradients flow to them."""
    if isinstance(ts, NestedTensor):
        return ts
    if not isinstance(ts, (list, tuple, Tensor)):
        raise TypeError(
            f"as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors, got {type(ts).__name__}"
        )
    if not len(ts):
        raise RuntimeError("as_nested_tensor(): Cannot construct a nested tensor from an empty list")
    if not isinstance(ts[0], Tensor):  # numbers, whose dtype is that of all
        ts = [of_numbers(part) for part in ts]
        dtype = dtype or reduce(promote_types, [part.dtype for part in ts])
    parts = [part.to(device, dtype) for part in ts]
    if layout not in (None, strided, jagged):
        raise RuntimeError(f"Specified layout is unsupported for nested tensors: {layout}")
    kinds = {(part.ndim, part.dtype, part.device) for part in parts}
    if len(kinds) > 1 or not parts[0].ndim:
        raise RuntimeError(
            "as_nested_tensor(): all tensors must have one dtype and device, and as many dimensions, at least one"
        )
    if layout is jagged and len({part.shape[1:] for part in parts}) > 1:
        raise RuntimeError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout: sizes may differ in the first "
            "dimension of the tensors only"
        )
    return NestedTensor(parts, layout is jagged)


def nested_tensor(
    tensor_list: Any,
    *,
    dtype: Any = None,
    layout: Layout | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> NestedTensor:
    """A copy of a list of tensors, or of what `torch.tensor` takes, as one tensor: a leaf."""
    if not isinstance(tensor_list, (list, tuple)):
        raise TypeError(
            f"nested_tensor(): Expected first argument to be a list of tensors, got {type(tensor_list).__name__}"
        )
    copies = [part.detach().clone() if isinstance(part, Tensor) else part for part in tensor_list]
    return as_nested_tensor(copies, dtype, device, layout).requires_grad_(requires_grad)


def nested_tensor_from_jagged(
    values: Tensor,
    offsets: Tensor | None = None,
    lengths: Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> NestedTensor:
    """Parts of `values` along its dimension `jagged_dim` - 1, 0 by default, as views.

    offsets: where they begin, and the end of the last. lengths: their lengths, in place of offsets or where there are gaps.
    """
    dim = 0 if jagged_dim is None else jagged_dim - 1
    if offsets is not None:
        starts = offsets.tolist()
        counts = [b - a for a, b in pairwise(starts)] if lengths is None else lengths.tolist()
    elif lengths is not None:
        counts = lengths.tolist()
        starts = [sum(counts[:i]) for i in range(len(counts))]
    else:
        raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
    return NestedTensor([values.narrow(dim, a, n) for a, n in zip(starts, counts, strict=False)], True)


def narrow(
    tensor: Tensor, dim: int, start: int | Tensor, length: int | Tensor, layout: Layout = strided
) -> NestedTensor:
    """Of each of the tensors along dimension 0 a slice of its own of dimension 1, as views in the layout `torch.jagged`."""
    if layout is not jagged or dim != 1:
        raise RuntimeError(f"narrow(): expected layout torch.jagged and dim 1, got {layout} and {dim}")
    starts, lengths = (v.tolist() if isinstance(v, Tensor) else [v] * len(tensor) for v in (start, length))
    rows = zip(tensor, starts, lengths, strict=True)
    return NestedTensor([row.narrow(0, a, n) for row, a, n in rows], True)


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """Of each row the elements where `mask` is True, in the layout `torch.jagged`."""
    rows: Sequence[Any] = list(zip(tensor, mask.expand(tensor.shape), strict=True))
    return NestedTensor([row[kept] for row, kept in rows], True)


def to_padded_tensor(input: NestedTensor, padding: float, output_size: Sequence[int] | None = None) -> Tensor:
    """`NestedTensor.to_padded_tensor`."""
    return input.to_padded_tensor(padding, output_size)
