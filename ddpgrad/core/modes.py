"""The modes of a thread: grad mode, inference mode, and what functions ask before they run.

The version counter of a tensor is a list of one number, shared by all tensors on the same
memory. A tensor made in inference mode has an `InferenceVersions` instead: it counts nothing,
and cannot be read outside of inference mode, which is how saving such a tensor for backward
is refused without a question on the way of all others. A gradient whose memory the next one takes
has a `LentVersions`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from . import upcalls
from .errors import NotMapped
from .rank_local import RankLocal


class _Mode(threading.local):
    """Whether operations of this thread are recorded for backward, and whether they would be outside of inference mode.

    stand_in: this thread's batch is there for the sake of other ranks' collectives only, and `backward` gives zeros.
    levels: the transforms of `torch.func` that the thread is in, as far as custom Functions and random generators ask
        them, the innermost last.
    transposing: the reverse pass that runs is there to be differentiated by its seeds, which gives tangents.
    """

    enabled: bool = True
    wanted: bool = True
    stand_in: bool = False
    levels: tuple[Any, ...] = ()
    transposing: bool = False


mode = _Mode()


class _Inference(threading.local):
    """Whether this thread is in inference mode."""

    on: bool = False


inference = _Inference()

inferring: list[int] = []
"""Not empty while any thread is in inference mode."""


recorders: list[Any] = []
"""The active `Recorder`s, if any (`ops/dispatch/recording.py`): ops tell them of arrays that come about without a kernel."""

exporting: RankLocal[bool] = RankLocal(bool)
"""True while a forward is written down for another runtime, which needs all of it to be made of ops."""


class _Uninitialised:
    """Whether memory that nothing is written to is filled: when programs want that, and asked for determinism."""

    wanted: bool = True
    deterministic: bool = False

    @property
    def filled(self) -> bool:
        return self.wanted and self.deterministic


uninitialised: RankLocal[_Uninitialised] = RankLocal(_Uninitialised)


telling: list[Any] = []
"""The subclasses of Tensor that are told of ops, and the dispatch modes that any thread is in (`dispatching.py`)."""


class _FunctionModes(threading.local):
    """The `TorchFunctionMode`s that this thread is in, the innermost last."""

    def __init__(self) -> None:
        self.entered: list[Any] = []


function_modes = _FunctionModes()


class InferenceVersions(list[int]):
    """The counter of a tensor made in inference mode; `RuntimeError` when it is read outside."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        if inference.on:
            return 0
        raise RuntimeError(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
            "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and "
            "use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        pass


class LentVersions(list[int]):
    """The counter of a gradient in memory that the next backward writes to.

    lent: what has the elements and does not share the counter: arrays of NumPy's, and counters of what `.data` returned.
    owner: of such a counter, what `.data` returned.
    """

    __slots__ = ("__weakref__", "lent", "owner")
    owner: ref[Any]

    def __init__(self, lent: dict[int, ref[Any]] | None = None) -> None:
        super().__init__((0,))
        self.lent = {} if lent is None else lent

    def borrowers(self) -> list[Any]:
        """What of `lent` there is still."""
        if not self.lent:
            return []
        alive = [found for to in self.lent.values() if (found := to()) is not None]
        if not alive:
            self.lent.clear()
        return alive


def lend(counter: list[int], array: Any) -> Any:
    """The array of a tensor with this counter, for a program; if that has to be noted, another one of the same elements."""
    if isinstance(counter, LentVersions):
        array = array.view()
        counter.lent[id(array)] = ref(array)
    return array


def apart(counter: list[int], data: Any) -> Any:
    """`data`, which has the elements of a tensor with this counter, and a counter of its own."""
    if isinstance(counter, LentVersions):
        data._versions = own = LentVersions(counter.lent)
        own.owner = ref(data)
        counter.lent[id(own)] = ref(own)
    return data


def fresh_versions() -> list[int]:
    """The counter of a new tensor of this thread."""
    return InferenceVersions() if inference.on else [0]


def set_inference(on: bool) -> None:
    """Let this thread enter or leave inference mode."""
    if on and not inference.on:
        inferring.append(threading.get_ident())
    elif inference.on and not on:
        inferring.remove(threading.get_ident())
    inference.on = on


# -- vmap, which runs a function once for all examples (`backend/mapped`) -------------------------

mapping: list[Callable[[Sequence[Any]], Any]] = []
"""Not empty while any thread does so: the function that finds an array of examples among the raw arguments of an op, or None."""


crossed: list[Callable[[Sequence[Any]], Any]] = []
"""That function, once a gradient may lead into such a graph from outside (`autograd/crossing.py`)."""


@upcalls.at_once.register
def at_once() -> bool:
    """Whether this thread runs a function once for all examples."""
    return any(level.at_once for level in mode.levels)


def refuse_at_once() -> None:
    """Let `vmap` be a loop, before something is done that must not be done twice."""
    if at_once():
        raise NotMapped


def check_examples_writable(array: Any) -> None:
    """Let `vmap` be a loop where `array` may be memory that others see, to which something would be written twice."""
    innermost = next((level for level in reversed(mode.levels) if level.at_once), None)
    if innermost is not None and not innermost.owns(array):
        raise NotMapped
