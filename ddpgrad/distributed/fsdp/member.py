"""A parameter of a group: its rows, and what stands for it while it is gathered."""

from __future__ import annotations

import math
from typing import Any

from ...autograd.accumulate import AccumulateGrad
from ...backend.device import Device
from ...backend.registry import backend_for, to_device
from ...core.tensor import Tensor, wrap
from ...nn.modules.module import Module
from ...nn.modules.registration import put
from ...nn.parameter import Parameter
from ..device_mesh import DeviceMesh
from ..tensor.dtensor import DTensor, ShardedParameter
from ..tensor.exchange import fresh
from ..tensor.layout import REPLICATE, AnyShard, Layout, _StridedShard, layout_of
from ..tensor.parts import Withheld, placed, plain


class Member:
    """One parameter: its rows, and what stands for it while it is gathered.

    layout: how it is divided among the ranks of the mesh of `fully_shard`; of a DTensor this rank's part of it is. within: how the
    DTensor lies on its own mesh, and lies: how it does on both. replicas: on which mesh all ranks have all of it, if they do. places: the modules that have it, with their names for it.
    index: its number among all below the root. part: where its rows lie in what a rank sends; whole: where all of it lies in
    the gathered memory, both counted in elements.
    """

    __slots__ = (
        "absent", "accumulator", "gathered", "grad", "index", "layout", "lies", "name", "part", "places",
        "sharded", "whole", "within",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        places: list[tuple[Module, str]],
        p: Any,
        layout: Layout,
        on_host: bool = False,
        replicas: DeviceMesh | None = None,
    ) -> None:
        self.name, self.places, self.layout = name, places, layout
        self.within: Layout | None = p._layout if isinstance(p, DTensor) else None
        outer = layout if replicas is None else layout_of(replicas, [REPLICATE], layout.shape)
        self.lies = outer if self.within is None else _both(outer, self.within)
        self.sharded: ShardedParameter = self.divided(p, on_host)
        self.gathered: Parameter
        self.absent: Absent  # what `gathered` has while it is not gathered
        self.accumulator: AccumulateGrad
        self.grad: DTensor | None = None  # what `sharded.grad` is, again and again
        self.index = self.part = self.whole = 0

    def divided(self, p: Any, on_host: bool = False) -> Any:
        """Make `p`, which stays the same object, hold this rank's part. on_host: in host memory."""
        inner = self.within is not None and isinstance(p, DTensor)
        part: Any = plain(p._array)[self.layout.index if inner else self.lies.index]
        if not p.is_meta:
            part = placed(to_device(part, Device("cpu")).copy() if on_host else part.copy(), self.lies)
        p.__class__ = ShardedParameter
        p._array = part
        p._layout = self.lies
        p._versions = [p._versions[0] + 1]
        return p

    def shown(self, array: Any) -> Any:
        """`array`, which has this rank's part of the gathered parameter, as the parameter holds it."""
        return array if self.within is None else placed(array, self.within)

    def stand_in(self, absent: Absent) -> Parameter:
        """What is `gathered`, with nothing there yet."""
        self.absent = absent
        if self.within is None:
            return wrap(absent, Parameter)
        gathered = wrap(self.shown(absent), ShardedParameter)
        gathered._layout = self.within
        return gathered

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
                    f"fully_shard: parameter '{self.name}' was replaced by another after the module was used. Change it in "
                    "place: under no_grad with copy_(), or by load_state_dict."
                )
            put(module, attribute, parameter)


class Absent(Withheld):
    """Stands for the elements of a whole parameter that is not gathered now: to use them is an error."""

    __slots__ = ()
    why = (
        "this parameter was resharded, and this rank has its rows only; it is whole within the forward of its module, or "
        "after module.unshard(). Take it from the module anew"
    )


def _both(layout: Layout, within: Layout) -> Layout:
    """How a tensor lies that is divided as `within` says, and whose parts are as `layout` says."""
    mesh = DeviceMesh._concatenate([layout.mesh, within.mesh])
    first = [
        _StridedShard(
            p.dim,
            split_factor=math.prod(
                within.mesh.size(d) for d, q in enumerate(within.placements) if q.divides(p.dim)
            ),
        )
        if isinstance(p, AnyShard)
        else p
        for p in layout.placements
    ]
    return layout_of(mesh, [*first, *within.placements], within.shape)
