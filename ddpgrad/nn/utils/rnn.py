"""Sequences of different lengths: packed row by row, or padded to one length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import Tensor, cat, from_numpy, full, index_select, reshape, stack
from ...backend import dtype as dtypes
from ...ops.creation.data import elements_of
from ...ops.layers.embedding import embedding_rows
from ...ops.shape.shape import constant_pad


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Fields):
    """Sequences sorted by decreasing length: the first elements of all, then the second ones of those that have one, ….

    data (rows, *); batch_sizes: the number of rows of each step, on the CPU. sorted_indices,
    unsorted_indices: how the sequences were sorted, and back; None if they came sorted.
    """

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)):
                raise ValueError("PackedSequence: batch_sizes must be given with data")
            data, batch_sizes = data
            assert batch_sizes is not None
        if batch_sizes.is_cuda:
            raise ValueError(
                "batch_sizes should always be on CPU, as the host decides by it which rows to take"
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The data as `Tensor.to` gives it, and the indices beside it."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        indices = [
            i if i is None else i.to(data.device) for i in (self.sorted_indices, self.unsorted_indices)
        ]
        return PackedSequence(data, self.batch_sizes, *indices)

    def cpu(self) -> PackedSequence:
        """In host memory."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> PackedSequence:
        """On a GPU."""
        return self.to("cuda" if device is None else device)

    def float(self) -> PackedSequence:
        """The data as float32."""
        return self.to(dtypes.float32)

    def double(self) -> PackedSequence:
        """The data as float64."""
        return self.to(dtypes.float64)

    def half(self) -> PackedSequence:
        """The data as float16."""
        return self.to(dtypes.float16)

    def long(self) -> PackedSequence:
        """The data as int64."""
        return self.to(dtypes.int64)

    def int(self) -> PackedSequence:
        """The data as int32."""
        return self.to(dtypes.int32)

    def short(self) -> PackedSequence:
        """The data as int16."""
        return self.to(dtypes.int16)

    def char(self) -> PackedSequence:
        """The data as int8."""
        return self.to(dtypes.int8)

    def byte(self) -> PackedSequence:
        """The data as uint8."""
        return self.to(dtypes.uint8)

    def pin_memory(self) -> PackedSequence:
        """In memory that a GPU copies from directly."""
        indices = [i if i is None else i.pin_memory() for i in self[2:]]
        return PackedSequence(self.data.pin_memory(), self.batch_sizes, *indices)

    def is_pinned(self) -> bool:
        """Whether the data is in such memory."""
        return self.data.is_pinned()

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a GPU."""
        return self.data.is_cuda


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes `permutation`."""
    if permutation is None:
        return None
    return from_numpy(np.argsort(Tensor.numpy(permutation, force=True))).to(permutation.device)


def _rows(table: Tensor, indices: np.ndarray[Any, Any]) -> Tensor:
    """Rows `indices` of (rows, *)."""
    rest = tuple(table.shape[1:])
    flat = reshape(table, (table.shape[0], int(np.prod(rest))))
    return reshape(embedding_rows(flat, from_numpy(indices).to(table.device)), (*indices.shape, *rest))


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Sequences padded to one length, (T, B, *) or with `batch_first` (B, T, *), packed.

    enforce_sorted: `lengths` (B,) are decreasing already; otherwise the sequences are sorted.
    """
    sizes = elements_of(lengths)
    if sizes.ndim != 1:
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {sizes.ndim}D {sizes.dtype}"
        )
    order = None
    if not enforce_sorted:
        by_length = np.argsort(-sizes, kind="stable")
        sizes = sizes[by_length]
        order = from_numpy(by_length).to(input.device)
        input = index_select(input, 0 if batch_first else 1, order)
    if batch_first:
        input = input.transpose(0, 1)
    steps, batch = input.shape[:2]
    if len(sizes) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size={batch})"
        )
    if not len(sizes) or sizes.min() <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if (sizes[1:] > sizes[:-1]).any():
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement."
        )
    if sizes[0] > steps:
        raise RuntimeError(f"the longest sequence has length {sizes[0]}, but the input only {steps} steps")
    present = np.arange(sizes[0])[:, None] < sizes
    places = np.arange(sizes[0] * batch).reshape(-1, batch)[present]
    rows = _rows(reshape(input, (steps * batch, *input.shape[2:])), places)
    return PackedSequence(rows, from_numpy(present.sum(1)), order)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(sequences padded to one length (T, B, *) or with `batch_first` (B, T, *), their lengths), in the order before packing."""
    batch_sizes = sequence.batch_sizes.numpy()
    steps, batch = len(batch_sizes), int(batch_sizes[0])
    length = steps if total_length is None else total_length
    if length < steps:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={length} and max sequence length being {steps}"
        )
    data = sequence.data
    present = np.arange(batch) < batch_sizes[:, None]
    places = np.full((length, batch), len(data))
    places[:steps][present] = np.arange(len(data))
    lengths = present.sum(0)
    if sequence.unsorted_indices is not None:
        back = Tensor.numpy(sequence.unsorted_indices, force=True)
        places, lengths = places[:, back], lengths[back]
    padding = full((1, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device)
    out = _rows(cat([data, padding]), np.ascontiguousarray(places.T if batch_first else places))
    return out, from_numpy(lengths)


def pad_sequence(
    sequences: Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences (L, *) padded to the longest, (T, B, *) or with `batch_first` (B, T, *)."""
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("pad_sequence: received an empty list of sequences")
    sequences = [s.to(sequences[0].dtype) for s in sequences]
    longest = max(len(s) for s in sequences)
    padded = []
    for s in sequences:
        lack = longest - len(s)
        ends = (lack, 0) if padding_side == "left" else (0, lack)
        padded.append(constant_pad(s, [ends] + [(0, 0)] * (s.ndim - 1), padding_value) if lack else s)
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences (L, *) without their padding."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[: int(length)].clone() for row, length in zip(rows, lengths, strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences (L, *) of different lengths, packed."""
    lengths = [len(s) for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences (L, *), in the order before packing."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
