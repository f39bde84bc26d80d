"""How whole gradients become averages over all ranks, of which each rank gets its rows, in the order of the tree.

On a mesh of one dimension that is a reduce-scatter. On one of two dimensions, where replicas have the same rows, the ranks that
have different rows make sums first where these are parts of the tree by themselves: where there are 2, 4, 8 ... of them, with
neighbouring numbers. Replicas then add up what they have. In any other grid each rank averages a piece of its rows over all ranks,
and replicas gather the pieces: the bits are the same, and more goes between them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import spans
from ..communicator.communicator import ArrayWork, Communicator
from ..protocol.tree import wide_dtype
from ..tensor.exchange import told
from ..tensor.layout import Layout


class Reduction:
    """The reductions of one group, one after the other; `layout` is that of its parameters.

    all_ranks: those of the mesh. first: those of the first step. in_parts: sums are made by the ranks that have different
    rows first. places: the row in which the memory that is reduced has what goes to a rank, by replica and by rank among
    those with different rows. dtype: of averages; sent: of the memory that is reduced. part_size: elements of a full part.
    """

    def __init__(self, layout: Layout) -> None:
        mesh, dim = layout.mesh, layout.dim or 0
        group = mesh._flatten().get_group()
        self.all_ranks: Communicator = group.communicator
        self._replicas = mesh.get_group(1 - dim).communicator if mesh.ndim == 2 else None
        ranks = np.moveaxis(mesh.mesh.numpy(), dim, -1).reshape(-1, layout.communicator.size)
        places = np.sort(np.searchsorted(group.ranks, ranks))  # groups count their ranks in ascending order
        shards = places.shape[1]
        neighbours = np.array_equal(places, np.arange(places.size).reshape(places.shape))
        self.in_parts = len(places) > 1 and shards & (shards - 1) == 0 and neighbours
        self.first = layout.communicator if self.in_parts else self.all_ranks
        self.places = places[:1] if self.in_parts else places
        self._at = [_index(row) for row in self.places]
        self._label = ""
        self._work: ArrayWork | None = None
        self._part: Any = None
        self._between = False
        self._divide_by: float | None = None

    def prepare(self, part_size: int, dtype: np.dtype[Any]) -> None:
        """Say what is reduced: parts of so many elements at least."""
        self._piece = -(-part_size // len(self.places))
        self.part_size = self._piece * len(self.places)
        # Sums of a part of the ranks are not rounded to 16 bits.
        self.dtype, self.sent = dtype, wide_dtype(dtype) if self.in_parts else dtype

    @property
    def readers(self) -> list[Communicator]:
        """Who reads the memory that is reduced, and what comes of it."""
        return [self.first] if self._replicas is None else [self.first, self._replicas]

    @property
    def length(self) -> int:
        """Elements of the memory that is reduced."""
        return self.places.size * self._piece

    def deal(self, memory: Any, flat: Any, size: int, part: int) -> None:
        """Put a whole gradient, by ranks, where a rank has `size` elements of it, from element `part` on."""
        rows = memory.reshape(-1, self._piece)
        if self.sent != self.dtype:
            flat = flat.astype(self.dtype, copy=False)
        for replica, (places, at) in enumerate(zip(self.places, self._at, strict=True)):
            start = max(part, replica * self._piece)
            count = min(part + size, (replica + 1) * self._piece) - start
            if count > 0:
                to = rows[:, start - replica * self._piece :][:, :count]
                _deal(flat, size, start - part, to, places, at)

    def start(self, memory: Any, label: str, divide_by: float | None = None) -> None:
        """Begin to reduce `memory`; divide_by: where that is not the number of ranks."""
        op = "avg" if divide_by is None and not self.in_parts else "sum"
        self._divide_by = divide_by or (self.all_ranks.size if op == "sum" else None)
        self._label, self._between = label, False
        began = spans.now()
        self._part, self._work = self.first.start_reduce_scatter(memory, op, label)
        told("c10d._reduce_scatter_base_", self.first, memory, began)

    def go_on(self) -> None:
        """Begin what replicas do; all ranks call it at the same place of the program."""
        if self._replicas is None or self._work is None or self._between:
            return
        self._work.wait()
        self._between, began = True, spans.now()
        if self.in_parts:
            self._work = self._replicas.all_reduce(self._part, "sum", self._label, async_op=True)
        else:
            self._part, self._work = self._replicas.start_all_gather(self._part, self._label)
        op = "c10d.allreduce_" if self.in_parts else "c10d._allgather_base_"
        told(op, self._replicas, self._part, began)

    def poll(self) -> None:
        """Advance what is under way, without waiting."""
        if self._work is not None:
            self._work.poll()

    def finish(self) -> Any:
        """Wait for the averages of this rank's part, which lie where the memory lay."""
        self.go_on()
        assert self._work is not None
        self._work.wait()
        part, self._part, self._work = self._part.reshape(-1), None, None
        if self._divide_by is not None:
            part /= self._divide_by
        return part.astype(self.dtype, copy=False)


def _index(places: np.ndarray) -> Any:
    """The index of these rows: a slice where they are neighbours, which a GPU takes without a copy from the host."""
    first = places[0].item()
    return slice(first, first + len(places)) if (np.diff(places) == 1).all() else places


def _deal(flat: Any, size: int, first: int, to: Any, places: np.ndarray, at: Any) -> None:
    """Put a stretch of each rank's part of `flat`, from element `first` on, into its row of `to` (rows, elements).

    size: elements of a full part; places: by rank, its row; at: the index of all of them. Where a rank has fewer elements,
    zeros follow.
    """
    count = to.shape[1]
    if flat.size == len(places) * size:
        to[at] = flat.reshape(-1, size)[:, first : first + count]
        return
    for rank, place in enumerate(places):
        start = min(rank * size + first, flat.size)
        stop = min(start + count, flat.size)
        to[place, : stop - start] = flat[start:stop]
        to[place, stop - start :] = 0
