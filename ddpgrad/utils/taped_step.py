"""A step on the CPU that is recorded as a row of kernels, and what replays it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..autograd.passes import abandon, depth
from ..core.living import living
from ..core.tensor import Tensor, wrap
from ..nn.modules.module import Module, register_module_forward_pre_hook
from ..ops.dispatch.tape import Recording, difference
from ..ops.dispatch.tape_code import Code
from ..ops.dispatch.tape_entries import Slot, same
from ..optim.optimizer import Optimizer
from . import _pytree
from .surroundings import SIMPLE, Guard, Place, drawn, places, steady

_MOST_RECORDINGS = 4  # in which two neighbours must be the same


class _Output:
    """Where a replay puts its next array."""


_OUTPUT = _Output()


class _Taken(NamedTuple):
    """A step that was recorded. places: the slots that it returns, and which are to be copied; form, tree: what around them."""

    tape: Recording
    places: list[tuple[Slot, bool]]
    tree: Any
    form: list[Any]

    def difference(self, other: _Taken) -> str | None:
        """In what two steps differ, or None."""
        if (found := difference(self.tape, other.tape)) is not None:
            return found
        alike = self.places == other.places and self.tree == other.tree and same(self.form, other.form)
        return None if alike else "what it returns differs from step to step"


class TapedStep:
    """A step for inputs of one kind, which is recorded until two recordings are the same, and then replayed.

    failure: why it cannot be, or None.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._taken: _Taken | None = None
        self._recordings = 0
        self._modules: dict[int, Module] = {}
        self._read: list[Place] = []  # of Python, in the step that was recorded last
        self._code: Code | None = None
        self._changed: Callable[[], str | None] = lambda: None
        self.failure: str | None = None

    @property
    def ready(self) -> bool:
        """Whether the next call is a replay."""
        return self._code is not None

    @property
    def code(self) -> str | None:
        """The source of what replays it."""
        return None if self._code is None else self._code.text

    def record(self, leaves: Sequence[Any], args: Any, kwargs: Any) -> Any:
        """Take a step as always, and record it."""
        there = living((Tensor, Module, Optimizer))
        tensors = [t for t in there if isinstance(t, Tensor) and isinstance(t._array, np.ndarray)]
        groups = [group for o in there if isinstance(o, Optimizer) for group in o.param_groups]
        before = {id(m): (m, _plain(m.__dict__)) for m in there if isinstance(m, Module)}
        del there
        # The arguments have arrays of their own: the program may also reach the same tensors by another way.
        own = [_alias(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        args, kwargs = _pytree.tree_unflatten(own, _pytree.tree_structure((args, kwargs)))
        inputs = [leaf._array for leaf in own if isinstance(leaf, Tensor)]
        tape = Recording(inputs, tensors, lambda: [_plain(group) for group in groups])
        handle = register_module_forward_pre_hook(self._note)
        numbers = drawn()
        try:
            with tape:
                result = self._function(*args, **kwargs)
        finally:
            handle.remove()
        if drawn() != numbers:
            tape.fail("it draws random numbers of Python's or NumPy's own")
        for module, attributes in [before[key] for key in self._modules if key in before]:
            if not same(attributes, _plain(module.__dict__)):
                tape.fail(f"it changes a number or flag of a {type(module).__name__}")
        self._end(tape, result)
        return result

    def _note(self, module: Module, args: Any) -> None:
        self._modules[id(module)] = module

    def _end(self, tape: Recording, result: Any) -> None:
        """Compare with the step that was recorded before, if there is one, and make the code of both."""
        outputs, tree = _pytree.tree_flatten(result)
        tensors = [o for o in outputs if isinstance(o, Tensor)]
        form = [_OUTPUT if isinstance(o, Tensor) else o for o in outputs]
        taken = _Taken(tape, [tape.returned(t._array) for t in tensors], tree, form)
        if any(t._requires_grad for t in tensors) and not tape.backward_runs():
            tape.fail("it returns a tensor whose backward is not part of the step")
        tape.let_go()
        before, self._taken = self._taken, taken
        read, self._read = self._read, places(self._function, self._modules.values())
        self._recordings += 1
        if tape.failure is not None:
            self.failure = tape.failure
        elif before is not None:
            unlike = before.difference(taken)
            if unlike is None:
                self._code = Code(tape, taken.places)
                self._changed = guard(tape, self._modules.values(), steady(read, self._read))
            elif self._recordings == _MOST_RECORDINGS:
                self.failure = unlike

    def changed(self) -> str | None:
        """What the replay relies on and is not as it was recorded, or None."""
        return self._changed()

    def replay(self, leaves: Sequence[Any]) -> Any:
        """Take a step by what was recorded."""
        assert self._code is not None and self._taken is not None
        kept = depth()
        try:
            found = self._code.replay(*[leaf._array for leaf in leaves if isinstance(leaf, Tensor)])
        finally:
            abandon(kept)
        arrays, form = iter(found), self._taken.form
        return _pytree.tree_unflatten(
            [wrap(next(arrays)) if o is _OUTPUT else o for o in form], self._taken.tree
        )


def _plain(attributes: dict[str, Any]) -> list[Any]:
    """Those that are numbers, flags or texts, with their names."""
    return [(name, value) for name, value in attributes.items() if isinstance(value, SIMPLE)]


def _alias(tensor: Tensor) -> Tensor:
    """The same memory and version counter in another tensor, with an array of its own."""
    out = tensor.detach()
    out._array = tensor._array[...]
    return out


def guard(tape: Recording, modules: Iterable[Module], read: Iterable[Place]) -> Callable[[], str | None]:
    """A function that compares what a replay relies on with what it was: tensors, modules, and what Python has read."""
    guard = Guard()
    for tensor in tape.loaded():
        t, dtype = guard.name(tensor), guard.name(tensor._array.dtype)
        shape = tensor._array.shape
        guard.check(
            f"(a := {t}._array).shape == {shape} and a.dtype is {dtype} and a.strides == {tensor._array.strides} "
            f"and {t}._requires_grad is {tensor._requires_grad}",
            f"a tensor of shape {list(shape)} has changed",
        )
    for leaf in tape.grads_before:
        guard.check(f"{guard.name(leaf)}._grad is not None", "a gradient that the step uses is not there")
    guard.modules(modules)
    guard.places(read)
    return guard.made()
