"""The ways of a collective through shared memory, and the table from which each call gets its way.

    bytes          this process                     way
    fit a slot     waits, with its only rank        AtOnce      slots; one round of flags; often: compiled
    more           waits, with its only rank        InWindows   sums of arrays that all processes map
    fit a slot     goes on, or hosts several ranks  InSlots     slots; steps as others arrive
    more           goes on, or hosts several ranks  InShares    each process works on its share, in steps

The first two are short forms of the last two: they post, wait and compute in one go. An `InWindows` whose
array is not in a window goes the way of `InShares`.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....core.environment import numba_enabled
from ....core.errors import DistributedError
from ...protocol import tree
from ...protocol.guard import Signature
from ..base import COMPLETED, Pending
from ..calls import AllToAll, Call, Reduce
from .collectives import Bridge, Collective, Large, Pairwise, Small
from .control import ARRIVE, DONE

if TYPE_CHECKING:
    from .compiled import Plan, Plans
    from .transport import ShmTransport

# Small collectives after which compiling pays. Numba takes as long to load as 100,000 of them; where it is, so do 2,000.
_COMPILE_AFTER = 100
_COMPILE_IF_LOADED = 20
_PLANS = 4096


class Way(ABC):
    """One way to carry a collective."""

    def __init__(self, transport: ShmTransport) -> None:
        self._transport = transport

    @abstractmethod
    def post(self, calls: Sequence[Call]) -> Pending:
        """Begin the collective of `calls`, which are in order of rank."""


Table = dict[tuple[bool, bool, bool], Way]
"""(the bytes fit a slot, this process has one rank and nothing under way, the caller waits) -> way."""


def table(transport: ShmTransport, at_once: AtOnce, shares: InShares) -> Table:
    """The ways of `transport`; see the module's text."""
    windows, slots = InWindows(transport, shares), InSlots(transport)
    return {
        (True, True, True): at_once,
        (True, True, False): slots,
        (True, False, True): slots,
        (True, False, False): slots,
        (False, True, True): windows,
        (False, True, False): shares,
        (False, False, True): shares,
        (False, False, False): shares,
    }


class AtOnce(Way):
    """A short form of `InSlots`, for a process that waits with its only rank.

    Collectives that come again are carried out by compiled code, by a plan for each signature.
    """

    def __init__(self, transport: ShmTransport) -> None:
        super().__init__(transport)
        self._count = 0
        self._maker: Plans | None = None
        self._seen: set[Signature] = set()
        self._plans: dict[Signature, Plan | None] = {}

    def now(self, signature: Signature, array: np.ndarray, result: np.ndarray) -> bool:
        """Carry out the collective of `signature` if there is a plan for it. The arrays are as a `Call` has them."""
        plan, transport = self._plans.get(signature), self._transport
        if plan is None or not transport.alone or transport.under_way or transport.failure is not None:
            return False
        carry, in_place, address, depth, size, as_bytes, _ = plan
        # Transports send other things, of other sizes, under the signature of a call that is made of several.
        if array.size != size:
            return False
        if as_bytes:
            array, result = array.view(np.uint8), result.view(np.uint8)
        number = transport.begin(signature, 0, depth)
        if in_place:
            if carry(array, address, number):
                return True
            transport.meet(number, signature)
            return carry(array, address, -number)
        result = result.reshape(-1)
        if carry(array, result, address, number):
            return True
        transport.meet(number, signature)
        return carry(array, result, address, -number)

    def post(self, calls: Sequence[Call]) -> Pending:
        call, transport = calls[0], self._transport
        number = transport.begin(call.signature, 0, transport.slots.depth(call.extent))
        slots = transport.slots.for_call(number, call)
        if slots:
            slots[transport.ranks.start][: call.array.size] = call.array
        transport.meet(number, call.signature)
        if slots:
            call.complete(calls, transport.ranks, slots)
        transport.control.publish(DONE, number)
        self._remember(call)
        return COMPLETED

    def _remember(self, call: Call) -> None:
        """Make a plan for collectives like `call`, once compiling pays and when they come again."""
        self._count += 1
        if self._count < (_COMPILE_IF_LOADED if "numba" in sys.modules else _COMPILE_AFTER):
            return
        signature = call.signature
        if signature not in self._seen:
            if len(self._seen) >= _PLANS:
                self._seen.clear()
                self._plans.clear()
            self._seen.add(signature)
        elif signature not in self._plans and numba_enabled():
            if self._maker is None:
                from .compiled import Plans

                self._maker = Plans(self._transport)
            self._plans[signature] = self._maker.make(call)


class InWindows(Way):
    """A short form of `InShares`, for sums of arrays in windows, in a process that waits with its only rank."""

    def __init__(self, transport: ShmTransport, shares: InShares) -> None:
        super().__init__(transport)
        self._shares = shares

    def post(self, calls: Sequence[Call]) -> Pending:
        call, transport = calls[0], self._transport
        if not isinstance(call, Reduce) or not (place := transport.windows.place(call.array)):
            return self._shares.post(calls)
        number, control = transport.begin(call.signature, place), transport.control
        transport.meet(number, call.signature)
        places = control.places(number)
        if not all(places):  # somebody's array is elsewhere, and must be passed through the scratch area
            return self._shares.follow(number, calls)
        share = transport.windows.share(places, call.array)
        tree.reduce_into(share.pieces, share.pieces, call.op, share.from_end)
        share.from_end = not share.from_end
        control.publish(DONE, number)
        try:
            control.wait(DONE, number, number, transport.timeout)
        except DistributedError as error:
            raise transport.failed(error) from None
        return COMPLETED


class InSlots(Way):
    """A small collective: everyone writes into a slot, and reads all slots when all have arrived."""

    def post(self, calls: Sequence[Call]) -> Pending:
        transport = self._transport
        number = transport.begin_all(calls, [0] * len(calls), transport.slots.depth(calls[0].extent))
        slots = transport.slots.for_call(number, calls[0])
        if slots:
            for rank, call in zip(transport.ranks, calls, strict=True):
                slot, array = slots[rank], call.array
                # Ranks of this process that do not agree are found out when all have arrived.
                if call.contributes(rank) and array.size <= slot.size and array.dtype == slot.dtype:
                    slot[: array.size] = array
        transport.control.publish(ARRIVE, number)
        collective = Small(transport, number, calls, slots)
        transport.under_way.append(collective)
        return collective


class InShares(Way):
    """A larger collective: each process works on its share of everyone's arrays."""

    def post(self, calls: Sequence[Call], bridge: Bridge | None = None) -> Collective:
        """Begin it. bridge: joins a reduction with the same one on other hosts."""
        transport = self._transport
        number = transport.begin_all(calls, [transport.windows.place(call.array) for call in calls])
        transport.control.publish(ARRIVE, number)
        return self.follow(number, calls, bridge)

    def follow(self, number: int, calls: Sequence[Call], bridge: Bridge | None = None) -> Collective:
        """Carry out the collective `number`, which this process has begun already."""
        transport = self._transport
        exchanges = [call for call in calls if isinstance(call, AllToAll)]
        collective = (
            Pairwise(transport, number, exchanges) if exchanges else Large(transport, number, calls, bridge)
        )
        transport.under_way.append(collective)
        return collective
