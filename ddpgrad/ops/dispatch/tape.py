"""A tape: the kernels that one thread runs for a step, in a row, with the arrays that each takes and makes.

It is recorded while the step runs as always. Every op's kernel stands behind a wrapper that tells the tape of the thread what
it was given and what it made (`replace_kernels`), the engine tells of gradient rules and sums (`autograd/taped_walk.py`), and
functions declared `@taped` are one entry each. An array is known by its identity: what an entry made is a *slot*; a tensor that
was there before is looked up in each replay; anything else is a *constant*.

What a constant was made from is not known: an index that the program wrote down, or something computed behind the tape's back.
So a step is recorded twice, and the tapes must be the same, constants included (`difference`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np

from ...autograd.taped_walk import begin
from ...backend.device import capture_forgets
from ...backend.registry import SparseArray
from ...core.taping import taping
from ...core.tensor import Tensor
from .tape_entries import (
    AsTensor,
    Constant,
    Entry,
    Slot,
    change,
    constant,
    converted,
    load,
    load_grad,
    same,
    write,
)
from .tape_wrappers import wrappers


class Recording:
    """The tape of the calling thread within a `with` block. inputs: arrays that each replay gets anew.

    tensors: all that are there before the step. options: says the numbers of Python that entries look up, such as learning
    rates; only entries may change them. failure: why the step cannot be replayed, or None; it runs to its end all the
    same, with nothing more recorded.
    """

    def __init__(self, inputs: Sequence[Any], tensors: Sequence[Tensor], options: Callable[[], Any]) -> None:
        self.entries: list[Entry] = []
        self.kinds: list[tuple[Any, Any]] = []  # shapes and dtypes of slots
        self.scalars: set[int] = set()  # slots that their entry gives as NumPy's scalars
        self.mutable: set[int] = set()  # slots of constants that the step writes to: each replay needs a copy
        self.grads_before: list[Tensor] = []  # leaves whose gradient the step uses before it has filled it
        self.failure: str | None = None
        self._wrapped = False
        self._slots: dict[int, Slot] = {}
        # References to the arrays of slots: the identity of one that is gone may come again.
        self._alive: dict[int, Any] = {}
        self._lasting: list[Any] = []  # arrays whose memory is there after the step
        self._constants: dict[
            int, tuple[Any, Any]
        ] = {}  # by slot: the array, and a copy from when it was first seen
        # Slots of tensors' arrays, which hold until something runs that may change them.
        self._loaded: dict[int, Slot] = {}
        self._tensors = {id(tensor): tensor for tensor in tensors}
        self._places: dict[int, tuple[Callable[[Tensor], Any], Tensor]] | None = None
        self._filled: set[int] = set()  # leaves whose gradient the step has touched
        self._writes: dict[int, int] = {}  # to memory, by the entries of the tape
        self._counted: dict[int, int] = {}  # version counters of tensors, less the writes
        self._options = options
        self._note_state()
        self._lasting += inputs
        self.inputs = [self._new(array) for array in inputs]

    def __enter__(self) -> Recording:
        for forget in capture_forgets:  # arrays that are kept from op to op are made within the step
            forget()
        self._wrapped = wrappers.put_on()
        if self._wrapped:
            taping.now = self
        else:
            self.fail("a summary or an export records its ops")
        return self

    def __exit__(self, *exc: object) -> None:
        taping.now = None
        if self._wrapped:
            wrappers.take_off()
        for forget in capture_forgets:
            forget()
        if self.failure is None:
            self._check_state()
            if any(place not in self.mutable and not same(*pair) for place, pair in self._constants.items()):
                self.fail("an array is written to by something that is no op")

    # -- what happens ------------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """Record no more."""
        self.failure = self.failure or reason
        taping.now = None

    def emit(self, function: Callable[..., Any], args: tuple[Any, ...], results: Any) -> None:
        """`function(*args)` was run and gave `results`."""
        told = tuple([self._told(arg) for arg in args])
        self.entries.append(Entry(function, told, {}, self._made(results)))

    def run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Run a function of arrays: one kernel, or a gradient rule."""
        results = self._unseen(lambda: function(*args))
        told = tuple([self._told(arg) for arg in args])
        if isinstance(results, (tuple, list)):
            results = type(results)([self._array(part, args) for part in results])
        else:
            results = self._array(results, args)
        self.entries.append(Entry(function, told, {}, self._made(results)))
        return results

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run `function`, which may do anything."""
        return self.event(function, args, lambda: function(*args, **kwargs), kwargs)

    def event(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        now: Callable[[], Any],
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call `now`; replays call `function`."""
        told = tuple([self._told(arg) for arg in args])
        named = {name: self._told(value) for name, value in (kwargs or {}).items()}
        for arg in args:
            if isinstance(arg, Tensor) and not self.knows(arg):
                self.own(arg._array)
        self._check_state()
        result = self._unseen(now)
        self.entries.append(Entry(function, told, named, self._made(result)))
        self._loaded.clear()
        self._places = None
        self._note_state()
        return result

    def _unseen(self, now: Callable[[], Any]) -> Any:
        taping.now = None
        try:
            return now()
        finally:
            taping.now = None if self.failure else self

    def on_write(self, array: Any, index: Any, value: Any) -> None:
        """`array[index]`, all of it for None, was made the elements of `value`; or `array` was made for that."""
        if index is None and self._find(array) is None:
            self.emit(converted, (value, array.dtype), array)
            return
        self.emit(write, (array, Ellipsis if index is None else index, value), None)
        root = _root(array)
        self._writes[id(root)] = self._writes.get(id(root), 0) + 1
        self.own(array)

    def own(self, array: Any) -> None:
        """Somebody may write to `array` from now on."""
        root = _root(array)
        for place, (made, _) in self._constants.items():
            if made is root:
                self.mutable.add(place)
            elif _root(made) is root:
                self.fail("part of an array that no op made is written to")

    def fills(self, leaf: Tensor) -> None:
        """The gradient of `leaf` is what the step makes of it."""
        self._filled.add(id(leaf))

    # -- arrays and their names ----------------------------------------------------------------

    def returned(self, array: Any) -> tuple[Slot, bool]:
        """The slot of an array that the step returns; and whether its memory is there after the step, so that it needs a copy."""
        slot = self._told(array)
        lasting = [*self._lasting, *[made for made, _ in self._constants.values()]]
        root = _root(array)
        return slot, any(_root(kept) is root for kept in lasting)

    def knows(self, tensor: Tensor) -> bool:
        """Whether a tensor was there before the step."""
        return id(tensor) in self._tensors

    def loaded(self) -> list[Tensor]:
        """The tensors that replays look up."""
        found = [e.args[0].value for e in self.entries if e.function is load]
        return list({id(tensor): tensor for tensor in found}.values())

    def backward_runs(self) -> bool:
        """Whether a backward pass is part of the step."""
        return any(entry.function is begin for entry in self.entries)

    def let_go(self) -> None:
        """Drop the arrays of the step."""
        self._alive.clear()
        self._lasting.clear()
        self._slots.clear()
        self._loaded.clear()
        self._constants.clear()

    def _array(self, result: Any, args: tuple[Any, ...]) -> Any:
        """A result as an array object that nothing else is: its identity is how it is known again."""
        if isinstance(result, np.generic):
            result = np.asarray(result)
            self.scalars.add(id(result))
        elif isinstance(result, np.ndarray) and any(result is arg for arg in args):
            result = result[...]
        return result

    def _new(self, array: Any) -> Slot:
        slot, key = Slot(len(self.kinds)), id(array)
        self.kinds.append((array.shape, array.dtype))
        self._slots[key] = slot
        self._alive[key] = ref(array, lambda _: self._slots.pop(key, None))
        if id(array) in self.scalars:
            self.scalars.remove(id(array))
            self.scalars.add(slot.number)
        return slot

    def _made(self, result: Any) -> Any:
        """The form of what an entry gave, with new slots."""
        if isinstance(result, np.ndarray):
            return self._new(result)
        if isinstance(result, Tensor):
            if not isinstance(result._array, np.ndarray):
                self.fail(f"it makes a tensor on {result.device}")
                return None
            return AsTensor(self._new(result._array))
        if isinstance(result, (tuple, list)):
            return tuple([self._made(part) for part in result])
        return None

    def _find(self, array: Any) -> Slot | None:
        """The slot of an array, which is looked up if a tensor from before has it."""
        found = self._slots.get(id(array)) or self._loaded.get(id(array))
        if found is not None:
            return found
        if self._places is None:
            tensors = self._tensors.values()
            self._places = {id(t._array): (load, t) for t in tensors}
            self._places |= {id(t._grad._array): (load_grad, t) for t in tensors if t._grad is not None}
        function, tensor = self._places.get(id(array), (None, None))
        if function is None or tensor is None:
            return None
        if function is load_grad and id(tensor) not in self._filled:
            self.grads_before.append(tensor)
        self._lasting.append(array)
        slot = self._loaded[id(array)] = self._new(array)
        del self._slots[id(array)]
        self.entries.append(Entry(function, (Constant(tensor),), {}, slot))
        return slot

    def _told(self, value: Any) -> Any:
        """An argument as the tape names it."""
        if isinstance(value, np.ndarray):
            return self._find(value) or self._constant(value)
        if isinstance(value, Tensor):
            if self.knows(value):
                return Constant(value)
            if value._requires_grad:
                self.fail("a tensor with a history goes to a function that is no op")
            return AsTensor(self._told(value._array))
        if type(value) in (tuple, list):
            told = type(value)([self._told(part) for part in value])
            return Constant(value) if all(isinstance(part, Constant) for part in told) else told
        if type(value) is dict:
            return {name: self._told(part) for name, part in value.items()}
        if isinstance(value, SparseArray) or hasattr(value, "__cuda_array_interface__"):
            self.fail("it uses a tensor that is sparse or not on the CPU")
        return Constant(value)

    def _constant(self, array: np.ndarray) -> Slot:
        slot = self._new(array)
        copy = array.copy()
        self._constants[slot.number] = array, copy
        self.entries.append(Entry(constant, (Constant(copy),), {}, slot))
        return slot

    def _note_state(self) -> None:
        self._optioned = self._options()
        self._counted = {
            key: t._versions[0] - self._writes.get(id(_root(t._array)), 0) for key, t in self._tensors.items()
        }

    def _check_state(self) -> None:
        """Fail if a tensor or an option was changed by what is no entry of the tape."""
        if not same(self._optioned, self._options()):
            self.fail(
                "it sets an option of an optimizer, such as the learning rate: do that outside of the step"
            )
        for key, tensor in self._tensors.items():
            if tensor._versions[0] - self._writes.get(id(_root(tensor._array)), 0) > self._counted[key]:
                self.fail(f"a tensor of shape {list(tensor.shape)} is written to by something that is no op")
                return


def difference(first: Recording, second: Recording) -> str | None:
    """In what two recordings of a step differ, or None."""
    for a, b in zip(first.entries, second.entries, strict=False):
        name = getattr(a.function, "__name__", "a kernel")
        if a.function is not b.function:
            return f"{name} of one step is {getattr(b.function, '__name__', 'another kernel')} in the next"
        if a.results != b.results:
            return f"{name} gives another number of results in the next step"
        for told, again in ((a.args, b.args), (a.kwargs, b.kwargs)):
            if (found := change(told, again)) is not None:
                return found if a.function in (constant, load) else f"{found}, in a call of {name}"
    if len(first.entries) != len(second.entries):
        return "one step has more operations than the next"
    if first.kinds != second.kinds:
        return "shapes differ from step to step"
    if first.mutable != second.mutable:
        return "one step writes to arrays that the next does not write to"
    return None


def _root(array: Any) -> Any:
    """The array that owns the memory."""
    while isinstance(getattr(array, "base", None), np.ndarray):
        array = array.base
    return array
