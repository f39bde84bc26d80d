"""Embedding: a table of vectors looked up by index, alone or in bags."""

from __future__ import annotations

from typing import Any

from ... import Tensor, empty, no_grad
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .module import Module


class _Table(Module):
    """A table (num_embeddings, embedding_dim), and the options that both layers have."""

    weight: Parameter
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    max_norm: float | None
    norm_type: float
    scale_grad_by_freq: bool
    sparse: bool

    def _set_up(
        self,
        rows: int,
        width: int,
        padding_idx: int | None,
        weight: Tensor | None,
        freeze: bool,
        **where: Any,
    ) -> None:
        self.num_embeddings, self.embedding_dim = rows, width
        if padding_idx is not None:
            if not -rows <= padding_idx < rows:
                raise AssertionError(f"Padding_idx must be within num_embeddings={rows}, got {padding_idx}")
            padding_idx %= rows
        self.padding_idx = padding_idx
        if weight is None:
            self.weight = Parameter(empty(rows, width, **where), requires_grad=not freeze)
            self.reset_parameters()
        else:
            if tuple(weight.shape) != (rows, width):
                raise AssertionError(
                    f"Shape of weight does not match num_embeddings and embedding_dim: {list(weight.shape)} for "
                    f"[{rows}, {width}]"
                )
            self.weight = Parameter(weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        """Draw the table anew from the normal distribution."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    def _described(self, *more: str) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq is not False:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        return ", ".join([*parts, *more])


def _size(embeddings: Tensor) -> tuple[int, int]:
    if embeddings.ndim != 2:
        raise AssertionError(
            f"Embeddings parameter is expected to be 2-dimensional, got {list(embeddings.shape)}"
        )
    return embeddings.shape[0], embeddings.shape[1]


class Embedding(_Table):
    """Indices (*) of `num_embeddings` rows in, vectors (*, embedding_dim) out.

    padding_idx: a row that starts as zeros and gets no gradient. max_norm, norm_type,
    scale_grad_by_freq: and sparse: see `functional.embedding`.
    """

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
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self._set_up(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device=device, dtype=dtype)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """A layer whose table is `embeddings` (rows, width)."""
        rows, width = _size(embeddings)
        return cls(
            rows,
            width,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight=embeddings,
            _freeze=freeze,
        )

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        own = self._described(*(("sparse=True",) if self.sparse else ()))
        return ", ".join(parts) + own.removeprefix(parts[0])


class EmbeddingBag(_Table):
    """Bags of indices in, the sum, mean or maximum of their vectors out; see `functional.embedding_bag`."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self.mode, self.include_last_offset = mode, include_last_offset
        self._set_up(num_embeddings, embedding_dim, padding_idx, _weight, False, device=device, dtype=dtype)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """A layer whose table is `embeddings` (rows, width)."""
        rows, width = _size(embeddings)
        layer = cls(
            rows,
            width,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            embeddings,
            include_last_offset,
            padding_idx,
        )
        layer.weight.requires_grad = not freeze
        return layer

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        padding = () if self.padding_idx is None else (f"padding_idx={self.padding_idx}",)
        return self._described(f"mode={self.mode!r}", *padding)
