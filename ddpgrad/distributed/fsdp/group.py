"""A group: parameters that are gathered, used, and whose gradients are reduced, together.

Between uses a rank has its rows of each (`ShardedParameter`), which the modules and the optimizer see. To compute,
the rows of all ranks are gathered into fresh memory, and ordinary parameters with views of it take the modules' places;
resharding drops the memory. What the graph keeps of it for backward is kept as a place in the group (`graph_places.py`),
not as an array. When all gradients have arrived they are averaged and dealt to the ranks, in the order of the tree, as
DistributedDataParallel's buckets are: so both have the same bits (`reduction.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any
from weakref import ref

from ...autograd.accumulate import accumulator
from ...autograd.grad_mode import is_grad_enabled
from ...backend import dtype as dtypes
from ...backend.device import Device
from ...backend.registry import backend_for, to_device
from ...core import spans
from ...core.errors import GraphError
from ...core.tensor import Tensor, wrap
from ...nn.modules.registration import put
from ..communicator.communicator import Communicator
from ..ddp.averages import arrival, is_finite, is_shared, lent, move_out
from ..ddp.use_errors import second_gradient
from ..tensor.dtensor import DTensor, ShardedParameter, dtensor
from ..tensor.exchange import brought, fresh, start_all_gather, told
from ..tensor.parts import ShardArray, placed, plain
from . import graph_places
from .member import Absent, Member
from .policies import MixedPrecisionPolicy
from .reduction import Reduction

if TYPE_CHECKING:
    from .context import Context

_ALIGN = 64  # bytes: where a whole parameter begins


class Group:
    """See the module's text. All members have one dtype and lie on one device.

    reshards: after forward, unless it runs within backward; few: the ranks among which parameters are divided then, where these
    are not all. syncs, all_reduces: average gradients, instead of adding them up locally; if both. computes_on: the GPU that
    computes, where rows lie in host memory. For divide_factor and what follows see the methods of `FSDPModule` that set them.
    """

    def __init__(
        self,
        members: Sequence[Member],
        policy: MixedPrecisionPolicy,
        reshards: bool,
        few: Communicator | None = None,
        computes_on: Device | None = None,
    ) -> None:
        self.members, self.policy, self.reshards, self.few = list(members), policy, reshards, few
        self._computes_on = computes_on
        self.name = ""
        self.divide_factor: float | None = None
        self.reduces_unused, self.gathers_early = False, True
        self.average_hook: Callable[[Tensor], None] | None = None
        self.next_in_backward: list[Group] = []
        self.reshards_after_backward = self.syncs = self.all_reduces = True
        self.handed_over = False  # in the backward that runs
        self.communicator = members[0].layout.communicator
        self.reduction = Reduction(members[0].layout)
        self.context: Context | None = None
        self.memory: Any = None  # of the whole parameters, while they are gathered
        self._versions: list[int] = []
        self._seen: list[int] = []  # identities of the members' arrays that lie on the device
        self._gathering: Callable[[], Any] | None = None
        self._kept: Any = None  # this rank's share among `few`
        self._reducing: list[Member] = []
        self._arrived: list[Member] = []
        self._gradients: ShardArray | None = None

    # -- before the first use ----------------------------------------------------------------

    def name_below(self, name: str, named: Mapping[int, str]) -> None:
        """Let messages name the group, and its members as the root does. named: its modules, by id."""
        self.name = name or "the root"
        for m in self.members:
            module, attribute = m.places[0]
            m.name = f"{named[id(module)]}.{attribute}".removeprefix(".")

    def adopt(self, whole: bool = True) -> None:
        """Take the parameters that have taken the places of others, by `load_state_dict(assign=True)` or before the first use.

        whole: also those that are whole on each rank, and are divided then.
        """
        for m in self.members:
            found = vars(m.places[0][0]).get(m.places[0][1])
            if found is m.sharded or not isinstance(found, Tensor if whole else ShardedParameter):
                continue
            if not isinstance(found, ShardedParameter):
                found = m.divided(found)
            elif not found._layout.fits(m.lies):
                raise ValueError(
                    f"fully_shard: parameter '{m.name}' was assigned a DTensor of shape {list(found.shape)}, {found.placements}, and "
                    f"lies as {list(m.lies.shape)}, {m.lies.placements}"
                )
            m.sharded, m.grad = found, None
            for module, attribute in m.places:
                put(module, attribute, found)

    def prepare(self, context: Context) -> None:
        """Lay out what is gathered and sent; once the parameters have their dtype and values."""
        self.context = context
        absent = [m.name for m in self.members if m.sharded.is_meta]
        if absent:
            raise RuntimeError(
                f"FSDP parameters should be materialized from meta device before training, but the following were still on "
                f"meta device: {absent}. Call module.to_empty(device=...), and then initialise or load them."
            )
        if hasattr(self.members[0], "gathered"):
            return
        own = {m.sharded.dtype for m in self.members}
        if len(own) > 1:
            raise RuntimeError(
                f"fully_shard: the parameters of group '{self.name}' now have several dtypes: {own}"
            )
        self.own_dtype = own.pop()
        places = {m.sharded.device for m in self.members}
        if len(places) > 1:
            raise RuntimeError(
                f"fully_shard: the parameters of group '{self.name}' lie on several devices, {sorted(map(str, places))}: move "
                "the module to one"
            )
        self.device = places.pop()
        if self._computes_on is not None and self.device.type != "cpu":
            raise RuntimeError(
                f"FSDP parameters should be materialized on CPU when enabling CPU offloading, and those of '{self.name}' lie on "
                f"{self.device}: call module.to_empty(device='cpu'), and do not move the module"
            )
        none = fresh(first := self.members[0].sharded._array.array, 0, first.dtype)
        self.like = none if self._computes_on is None else to_device(none, self._computes_on)
        chosen = self.policy.param_dtype if self.own_dtype.is_floating_point else None
        self.dtype = dtypes.of(chosen).numpy if chosen is not None else self.own_dtype.numpy
        reduced = self.policy.reduce_dtype
        self.reduce_dtype = dtypes.of(reduced).numpy if reduced is not None else self.dtype
        step = _ALIGN // self.dtype.itemsize
        part = whole = 0
        for m in self.members:
            m.part, m.whole = part, whole
            part += m.layout.part_size
            whole += -(-math.prod(m.layout.shape) // step) * step
            one = fresh(self.like, (1,) * len(m.layout.shape), self.dtype)
            m.gathered = m.stand_in(Absent.of(backend_for(one).library.broadcast_to(one, m.layout.shape)))
            m.accumulator = accumulator(m.gathered)
            m.accumulator.filled = arrival(ref(self), m)
        self.reduction.prepare(part, self.reduce_dtype)
        few = 1 if self.few is None else self.few.size
        self.part_size, self.whole_size = self.reduction.part_size, max(1, -(-whole // few)) * few

    # -- gathering ---------------------------------------------------------------------------

    def start_gathering(self) -> None:
        """Begin to gather, unless the parameters are there or on their way."""
        unchanged = self._versions == self._now()
        if unchanged and (self._gathering is not None or self.memory is not None):
            return
        self.stop_gathering()
        if unchanged and self._kept is not None:
            assert self.few is not None
            self._gathering = start_all_gather(self.few, self._kept, f"parameters of '{self.name}'")
            return
        self._kept = None
        parts = self._parts()
        sent = fresh(parts[0].array, self.part_size, self.dtype)
        for m, part in zip(self.members, parts, strict=True):
            rows = part.array
            sent[m.part : m.part + rows.size] = rows.reshape(-1)
            sent[m.part + rows.size : m.part + m.layout.part_size] = 0
        self._versions = self._now()
        began = spans.now()
        self._gathering = start_all_gather(self.communicator, sent, f"parameters of '{self.name}'")
        told("c10d._allgather_base_", self.communicator, sent, began)

    def _parts(self) -> list[ShardArray]:
        """This rank's rows of each member."""
        parts = [m.sharded._array for m in self.members]
        # To refer to the arrays would keep the optimizer from moving them (`optim/flat.py`).
        seen = [id(part) for part in parts]
        if seen != self._seen:  # others than before
            if any(m.sharded.device != self.device for m in self.members):
                raise RuntimeError(
                    f"fully_shard: parameters of group '{self.name}' have left {self.device} after their first use: move the "
                    "module before"
                )
            self._seen = seen
        return parts

    def stop_gathering(self) -> None:
        """Let go of what was begun in advance and not used."""
        if self._gathering is not None:
            self._gathering()
            self._gathering = None

    def gather(self) -> None:
        """Put the whole parameters into the modules."""
        self.start_gathering()
        if self._gathering is not None:
            wait, self._gathering = self._gathering, None
            rows = brought(wait(), self.like)
            few, self._kept = self._kept is not None, None
            memory = rows.reshape(-1) if few else fresh(rows, self.whole_size, self.dtype)
            for m in self.members:
                whole = m.part_of(memory)
                m.gathered._array = m.shown(whole)
                if few:
                    continue
                m.join(whole, rows)
            self._forget_memory()
            self.memory = memory
            graph_places.know(memory, self)
        for m in self.members:
            m.gathered._requires_grad = m.sharded._requires_grad
            m.stand(m.gathered)

    def leave_forward(self) -> None:
        """Forward has used the group: drop what it says, or all that no backward will need."""
        if not is_grad_enabled():
            self.reshard()
        elif self.reshards and self.few is not None and self.memory is not None:
            size = self.whole_size // self.few.size
            kept = self.memory[self.few.rank * size : (self.few.rank + 1) * size].copy()
            self.reshard()
            self._kept = kept
        elif self.reshards:
            self.reshard()

    def reshard(self) -> None:
        """Put this rank's rows into the modules, and drop the rest."""
        self._kept = None
        if self.memory is None:
            return
        self._forget_memory()
        for m in self.members:
            m.gathered._array = m.shown(m.absent)
            m.stand(m.sharded)

    def _forget_memory(self) -> None:
        if self.memory is not None:
            graph_places.forget(self.memory)
            self.memory = None

    def _now(self) -> list[int]:
        return [m.sharded._versions[0] for m in self.members]

    @property
    def rests(self) -> bool:
        """True when no member is trained."""
        return not any(m.sharded._requires_grad for m in self.members)

    @property
    def state(self) -> list[int]:
        """Differs when a member was written to."""
        return self._versions

    def place_again(
        self, state: list[int], offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any
    ) -> Any:
        """The array that the graph kept a place of, when the group was in `state`: backward needs it."""
        assert self.context is not None
        if state != self._now():
            raise GraphError(
                f"parameters of '{self.name}' that backward needs were changed since its forward, by an optimizer step or in "
                "place: call backward before, or forward again."
            )
        self.context.gather_for_backward(self)
        return graph_places.seen_at(self.memory, offset, shape, strides, dtype)

    # -- gradients ---------------------------------------------------------------------------

    def arrived(self, m: Member) -> None:
        """The gradient of a whole parameter is complete on this rank."""
        assert self.context is not None
        self.context.enter_backward()
        if any(m is other for other in self._arrived):
            raise second_gradient(m.name)
        self._arrived.append(m)
        self.context.arrives(m.index)
        self.context.advance()
        if not self.reduces_unused and len(self._arrived) == len(self._trained()):
            self.hand_over()

    def _trained(self) -> list[Member]:
        return [m for m in self.members if m.sharded._requires_grad]

    def hand_over(self) -> None:
        """Begin to average the gradients that have arrived, and reshard."""
        assert self.context is not None
        came, self._arrived = self._arrived, []
        self.handed_over = self.handed_over or bool(came)
        if self.syncs and self.all_reduces:
            for m in set(self.members) - set(came):
                self.context.finish_parts(m.index)
            # What only an earlier backward has used, which did not average, has its turn too.
            arrived = [m for m in self.members if m.gathered._grad is not None]
            if self.reduces_unused:
                arrived = self._trained()
            if arrived:
                self._start_reducing(arrived)
        if self.reshards_after_backward:
            self.reshard()

    def give_up(self) -> None:
        """Drop what a backward that raised has left."""
        self._arrived, self.handed_over = [], False
        self.stop_gathering()
        for m in self.members:
            m.gathered._grad = None
        self.reshard()

    def _start_reducing(self, arrived: list[Member]) -> None:
        assert self.context is not None
        memory = self.context.room(self)
        for m in arrived:
            if m.gathered._grad is not None and m.gathered._grad.requires_grad:
                from ..ddp.use_errors import warn_of_lost_graph  # here, as few programs come to it

                warn_of_lost_graph(m.name)
            array = m.zeros(memory) if m.gathered._grad is None else plain(m.gathered._grad._array)
            if self.context.finite.enabled:
                self.context.finite.look(array.reshape(-1), lambda m=m, array=array: [(m.name, array)])
            self.reduction.deal(memory, m.layout.by_ranks(array), m.layout.part_size, m.part)
            m.gathered._grad = None
        self.reduction.start(
            self.context.sent(memory), ", ".join(m.name for m in arrived), self.divide_factor
        )
        self._reducing = arrived

    def finish(self) -> None:
        """Wait for the averages, and add them to the gradients of this rank's rows."""
        if not self._reducing:
            return
        assert self.context is not None
        arrived, self._reducing = self._reducing, []
        part = brought(self.reduction.finish(), self.members[0].sharded._array.array)
        if self.average_hook is not None:
            self.average_hook(wrap(part))
        factor, parts = self.context.factors_now()
        for m in arrived:
            rows, p = m.sharded._array.array, m.sharded
            averaged = part[m.part : m.part + rows.size].astype(rows.dtype, copy=False)
            if factor != 1.0:
                averaged *= factor
            if parts > 1:
                averaged /= parts
            if self.context.nonfinite is not None:
                self.context.spoiled |= not is_finite(averaged)
            if p._grad is None:
                p._grad = self._gradient_of(m)
                p._grad._array.array[...] = averaged.reshape(rows.shape)
            else:
                p._grad._array.array[...] += averaged.reshape(rows.shape)
            p._grad._versions[0] += 1
            self.context.averaged(p)

    def drop_averages(self) -> None:
        """Wait for those under way, and forget them."""
        self.reduction.finish()
        self._reducing = []

    def _gradient_of(self, m: Member) -> DTensor:
        """The gradient of a member's rows: always in the same place, neighbour to the next one's."""
        rows = m.sharded._array.array
        if self._gradients is None:
            self._gradients = placed(backend_for(rows).new_zeros(rows, (self.part_size,)), None)
        # The member and the argument itself refer to it, and the program if it keeps the gradient of an earlier backward.
        if m.grad is not None and (getrefcount(m.grad) > 2 or is_shared(m.grad)):
            move_out(m.grad)
            m.grad = None
        if m.grad is None:
            m.grad = lent(dtensor(self._gradients[m.part : m.part + rows.size].reshape(rows.shape), m.lies))
        assert m.grad is not None
        return m.grad
