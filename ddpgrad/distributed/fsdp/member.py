"""A parameter of a group: its rows, and what stands for it while it is gathered."""

from __future__ import annotations

import math
from typing import Any

from ...autograd.accumulate import AccumulateGrad
from ...backend.device import Device
from ...backend.registry import backend_for, to_device
from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ..tensor.dtensor import DTensor, ShardedParameter
from ..tensor.exchange import fresh
from ..tensor.layout import Layout
from ..tensor.parts import Withheld, placed


class Member:
    """One parameter: its rows, and what stands for it while it is gathered.

    places: the modules that have it, with their names for it. index: its number among all below the root. part: where its
    rows lie in what a rank sends; whole: where all of it lies in the gathered memory, both counted in elements.
    """

    __slots__ = (
        "absent",
        "accumulator",
        "gathered",
        "grad",
        "index",
        "layout",
        "name",
        "part",
        "places",
        "sharded",
        "whole",
    )

    def __init__(
        self, name: str, places: list[tuple[Module, str]], sharded: ShardedParameter, layout: Layout
    ) -> None:
        self.name = name
        self.places, self.sharded, self.layout = places, sharded, layout
        self.gathered: Parameter
        self.absent: Absent  # what `gathered` has while it is not gathered
        self.accumulator: AccumulateGrad
        self.grad: DTensor | None = None  # what `sharded.grad` is, again and again
        self.index = self.part = self.whole = 0

    def part_of(self, memory: Any) -> Any:
        """Its place in the gathered memory."""
        return memory[self.whole : self.whole + math.prod(self.layout.shape)].reshape(self.layout.shape)

    def join(self, whole: Any, rows: Any) -> None:
        """Fill `whole` from what all ranks have sent: `rows` (ranks, elements)."""
        size = self.layout.part_size
        parts = rows[:, self.part : self.part + size]
        if self.layout.axis:
            whole[...] = self.layout.joined(parts)
            return
        flat = whole.reshape(-1)
        if flat.size == len(parts) * size:
            flat.reshape(-1, size)[...] = parts
            return
        for rank, part in enumerate(parts):
            start = min(rank * size, flat.size)
            stop = min(start + size, flat.size)
            flat[start:stop] = part[: stop - start]

    def zeros(self, like: Any) -> Any:
        """In place of a whole gradient, of the dtype and on the device of `like`."""
        zero = fresh(like, (1,) * len(self.layout.shape), like.dtype)
        zero[...] = 0
        return backend_for(zero).library.broadcast_to(zero, self.layout.shape)

    def stand(self, parameter: Tensor) -> None:
        """Let `parameter` stand in the modules."""
        for module, attribute in self.places:
            own = vars(module)
            if own.get(attribute) is not self.sharded and own.get(attribute) is not self.gathered:
                raise RuntimeError(
                    f"fully_shard: parameter '{self.name}' was replaced by another after the module was sharded. Change it in "
                    "place: under no_grad with copy_(), or by load_state_dict without assign=True."
                )
            own[attribute] = parameter


class Absent(Withheld):
    """Stands for the elements of a whole parameter that is not gathered now: to use them is an error."""

    __slots__ = ()
    why = (
        "this parameter was resharded, and this rank has its rows only; it is whole within the forward of its module, or "
        "after module.unshard(). Take it from the module anew"
    )


def divided(p: Any, layout: Layout, on_host: bool = False) -> ShardedParameter:
    """Make the Parameter `p`, which stays the same object, hold this rank's part. on_host: in host memory."""
    part: Any = p._array[layout.index]
    if not p.is_meta:
        part = placed(to_device(part, Device("cpu")).copy() if on_host else part.copy(), layout)
    p.__class__ = ShardedParameter
    p._array = part
    p._layout = layout
    p._versions = [p._versions[0] + 1]
    return p
