"""Embedding: a table of vectors looked up by index."""

from __future__ import annotations

from typing import Any

from .._tensor import Tensor
from ..autograd.grad_mode import no_grad
from ..ops.creation import empty
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


class Embedding(Module):
    """Indices (*) of `num_embeddings` rows in, vectors (*, embedding_dim) out.

    padding_idx: a row that starts as zeros and gets no gradient. max_norm, scale_grad_by_freq
    and sparse are not supported; `NotImplementedError` when set.
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        F.refuse_table_options("Embedding", max_norm, scale_grad_by_freq, sparse)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(
                    f"padding_idx must be within num_embeddings={num_embeddings}, got {padding_idx}"
                )
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        if _weight is None:
            table = empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.weight = Parameter(table, requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise ValueError(
                    f"shape of weight {list(_weight.shape)} does not match num_embeddings={num_embeddings} and "
                    f"embedding_dim={embedding_dim}"
                )
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None
    ) -> Embedding:
        """A layer whose table is `embeddings` (rows, width)."""
        rows, width = embeddings.shape
        return cls(rows, width, padding_idx, _weight=embeddings, _freeze=freeze)

    def reset_parameters(self) -> None:
        """Draw the table anew from the normal distribution."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
