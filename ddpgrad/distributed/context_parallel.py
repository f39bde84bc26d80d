"""Context parallelism: each rank has a part of every sequence, and attention sees all of it.

Source of names and arguments: torch.distributed.tensor.experimental. Keys and values of all ranks are gathered for each attention,
and their gradients are added up where they came from. A rank has the rows of two places of a sequence, one from either end, so that under a
causal mask all have the same work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..autograd.grad_mode import no_grad
from ..compat.overrides import TorchFunctionMode
from ..core.tensor import Tensor
from ..nn import functional as F
from ..ops.creation.data import tensor
from ..ops.shape.stacking import cat
from .device_mesh import DeviceMesh
from .nn.functional import all_gather

ROTATIONS = ("allgather", "alltoall")


class Options:
    """What programs set for all of their context parallelism. enable_load_balance: else a rank has neighbouring rows."""

    enable_load_balance = True


_cp_options = Options()


def set_rotate_method(rotate_method: str) -> None:
    """How keys and values reach other ranks: "allgather" or "alltoall". They are gathered in any case."""
    if rotate_method not in ROTATIONS:
        raise NotImplementedError(
            f"Context Parallel does not support using {rotate_method} for kv shards rotation: it knows {ROTATIONS}"
        )


def _rows(length: int, ranks: int) -> list[list[int]]:
    """The rows that each rank has of `length`. Raises ValueError: they cannot be dealt evenly."""
    parts = 2 * ranks if _cp_options.enable_load_balance else ranks
    if length % parts:
        raise ValueError(
            f"context_parallel: a sequence of {length} positions cannot be dealt to {ranks} ranks in {parts} equal parts: pad it"
        )
    size = length // parts
    places = [list(range(i * size, (i + 1) * size)) for i in range(parts)]
    if parts == ranks:
        return places
    return [places[rank] + places[-1 - rank] for rank in range(ranks)]


class _Attention(TorchFunctionMode):
    """Within it attention of a rank's rows sees the keys and values of all ranks."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh, self._group = mesh, mesh.get_group()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            return self._whole(*args, **(kwargs or {}))
        if func is F.multi_head_attention_forward:
            raise NotImplementedError(
                "context_parallel: MultiheadAttention is not divided; call scaled_dot_product_attention"
            )
        return func(*args, **(kwargs or {}))

    def _whole(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if attn_mask is not None:
            raise NotImplementedError(
                "context_parallel: attention with attn_mask is not divided; pass is_causal"
            )
        ranks, here = self._mesh.size(), self._mesh.get_local_rank()
        if is_causal:
            if query.shape[-2] != key.shape[-2]:
                raise ValueError(
                    f"context_parallel: causal attention takes as many queries as keys, got {query.shape[-2]} and {key.shape[-2]}"
                )
            rows = _rows(key.shape[-2] * ranks, ranks)
            order = tensor([row for part in rows for row in part], device=query.device)
            attn_mask = tensor(rows[here], device=query.device)[:, None] >= order
        key, value = (cat(all_gather(t.contiguous(), self._group), -2) for t in (key, value))
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, scale=scale, enable_gqa=enable_gqa
        )


@contextmanager
def context_parallel(
    mesh: DeviceMesh,
    *,
    buffers: Sequence[Tensor] | None = None,
    buffer_seq_dims: Sequence[int] | None = None,
    no_restore_buffers: set[Tensor] | None = None,
) -> Iterator[None]:
    """A block in which `buffers` have this rank's part of the sequence, and attention sees all of it.

    mesh: of one dimension. buffers: tensors that all ranks have alike, such as inputs, labels and positions, divided in
    place along their dimension in `buffer_seq_dims`; afterwards they are what they were, but for `no_restore_buffers`. Lengths must be
    multiples of 2 x ranks. Only `scaled_dot_product_attention` is changed, over dimension -2, and it takes no mask but `is_causal`.
    """
    divided, dims = list(buffers or ()), list(buffer_seq_dims or ())
    if len(divided) != len(dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    for buffer in no_restore_buffers or ():
        if not any(buffer is b for b in divided):
            raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
    ranks, here = mesh.size(), mesh.get_local_rank()
    parts = [
        b.detach().index_select(dim, tensor(_rows(b.shape[dim], ranks)[here], device=b.device))
        for b, dim in zip(divided, dims, strict=True)
    ]
    whole = [b.detach() for b in divided]
    for b, part in zip(divided, parts, strict=True):
        b.data = part
    try:
        with _Attention(mesh):
            yield
    finally:
        for b, before in zip(divided, whole, strict=True):
            if not any(b is other for other in no_restore_buffers or ()):
                b.data = before


@no_grad()
def context_parallel_unshard(
    mesh: DeviceMesh, buffers: Sequence[Tensor], seq_dims: Sequence[int], load_balancer: None = None
) -> list[Tensor]:
    """The whole of tensors that are divided as `context_parallel` divides, along `seq_dims`. Collective over `mesh`."""
    if load_balancer is not None:
        raise NotImplementedError("context_parallel_unshard: there are no load balancers of other kinds here")
    found = []
    for b, dim in zip(buffers, seq_dims, strict=True):
        gathered = cat(all_gather(b.contiguous(), mesh.get_group()), dim)
        rows = [row for part in _rows(gathered.shape[dim], mesh.size()) for row in part]
        found.append(gathered.index_select(dim, tensor(rows, device=b.device).argsort()))
    return found
