"""Rows of a DTensor, by which checkpoints hold it, and what of others lies likewise."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from .layout import AnyShard, Replicate, Shard, layout_of


class Rows:
    """The base of DTensor that has these methods."""

    __slots__ = ()
    _layout: Any
    placements: Any
    shape: Any
    device_mesh: Any
    settled: Any
    gradient_of: Any
    part: Any
    _with: Any

    @property
    def is_by_rows(self) -> bool:
        """Whether no other dimension than the first is divided."""
        return not any((p.divides() and not p.divides(0)) or p.is_partial() for p in self.placements)

    def by_rows(self) -> Any:
        """This tensor, or where another dimension is divided the same placed by rows, which is collective."""
        if self.is_by_rows:
            return self
        return self.settled([Shard(0) if p.divides() else Replicate() for p in self.placements])

    @property
    def local_rows(self) -> range:
        """The rows that this rank has, where no other dimension is divided."""
        return self._layout.span

    @property
    def is_first_replica(self) -> bool:
        """Whether this rank is the first of those that have the same rows: one of them is enough to save them."""
        return self._layout.is_first

    def part_of(self, tensor: Tensor) -> Any:
        """`tensor`, which is the whole or lies likewise, placed as this one. Memory is shared."""
        return self._with(self._taken(tensor))

    def _taken(self, value: Tensor) -> Any:
        """This rank's part of `value`, which is laid out as this tensor or is the whole."""
        if isinstance(value, Rows):
            if value.shape != self.shape:
                raise ValueError(
                    f"a DTensor of shape {list(value.shape)} does not fit one of shape {list(self.shape)}"
                )
            if not self._layout.fits(value._layout):
                raise ValueError(
                    f"a DTensor of shape {list(value.shape)}, {value.placements} does not lie as one of shape "
                    f"{list(self.shape)}, {self.placements}: redistribute() it, or take its full_tensor()"
                )
            return value.part()._array
        if tuple(value.shape) != self._layout.shape:
            raise ValueError(
                f"a DTensor of shape {list(self.shape)} cannot take a tensor of shape {list(value.shape)}"
            )
        return value._array[self._layout.index]

    def replicated(self, tensor: Tensor) -> Any:
        """`tensor`, which all ranks have alike, on this one's mesh."""
        mesh = self.device_mesh
        return self._with(tensor._array, layout=layout_of(mesh, [Replicate()] * mesh.ndim, tensor.shape))

    def beside(self, whole: Tensor) -> Any:
        """`whole`, made anew by all ranks alike, and divided as this one along dimensions that both have."""
        alike = [n == m for n, m in zip(whole.shape, self.shape, strict=False)]
        placements = [
            p if isinstance(p, AnyShard) and whole.ndim == len(self.shape) and alike[p.dim] else Replicate()
            for p in self.placements
        ]
        layout = layout_of(self.device_mesh, placements, whole.shape)
        return self._with(whole._array[layout.index].copy(), layout=layout).requires_grad_(
            whole.requires_grad
        )

    def _filled_like(self, make: Any, args: Any, kwargs: Any, dtype: Any, device: Any, trained: bool) -> Any:
        """What `make`, such as `zeros_like`, makes of each rank's part."""
        part = make(self.part(), *args, dtype=dtype, device=device, **kwargs)
        if make.__name__ == "empty_like":
            return self._with(part._array).requires_grad_(trained)
        return self.gradient_of(part._array).requires_grad_(trained)
