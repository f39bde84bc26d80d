"""A step on the CPU that is recorded as a row of kernels, and what replays it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

_MOST_RECORDINGS = 4  # in which two neighbours must be the same
_SIMPLE = (bool, int, float, str, type(None))


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
        try:
            with tape:
                result = self._function(*args, **kwargs)
        finally:
            handle.remove()
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
        self._recordings += 1
        if tape.failure is not None:
            self.failure = tape.failure
        elif before is not None:
            unlike = before.difference(taken)
            if unlike is None:
                self._code, self._changed = Code(tape, taken.places), guard(tape, self._modules.values())
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


def hooked(hooks: Any) -> tuple[int, ...]:
    """The numbers of the hooks of a module."""
    if hooks is None:
        return ()
    return *hooks.pre, *hooks.post, *hooks.backward_pre, *hooks.backward, *hooks.on_node


def _plain(attributes: dict[str, Any]) -> list[Any]:
    """Those that are numbers, flags or texts, with their names."""
    return [(name, value) for name, value in attributes.items() if isinstance(value, _SIMPLE)]


def _alias(tensor: Tensor) -> Tensor:
    """The same memory and version counter in another tensor, with an array of its own."""
    out = tensor.detach()
    out._array = tensor._array[...]
    return out


def guard(tape: Recording, modules: Any) -> Callable[[], str | None]:
    """A function that compares what a replay relies on with what it was: tensors, and plain attributes of modules."""
    scope: dict[str, Any] = {}
    lines = ["def changed():"]

    def check(condition: str, said: str) -> None:
        lines.append(f"    if not ({condition}): return {said!r}")

    for i, tensor in enumerate(tape.loaded()):
        scope[f"t{i}"], scope[f"d{i}"] = tensor, tensor._array.dtype
        shape = tensor._array.shape
        kind = f"t{i}._array.shape == {shape} and t{i}._array.dtype is d{i}"
        check(
            f"{kind} and t{i}._requires_grad is {tensor._requires_grad}",
            f"a tensor of shape {list(shape)} has changed",
        )
    for i, leaf in enumerate(tape.grads_before):
        scope[f"g{i}"] = leaf
        check(f"g{i}._grad is not None", "a gradient that the step uses is not there")
    for i, module in enumerate(modules):
        scope[f"m{i}"] = module.__dict__
        scope[f"h{i}"], scope["hooked"] = hooked(module._hooks), hooked
        seen = (
            f"hooked(m{i}['_hooks']) == h{i}" if module._hooks is not None else f"m{i}.get('_hooks') is None"
        )
        check(seen, f"hooks of a {type(module).__name__} have changed")
        for name, value in module.__dict__.items():
            if isinstance(value, _SIMPLE) and value == value:
                scope[f"m{i}_{name}"] = value
                check(f"m{i}[{name!r}] == m{i}_{name}", f"{name} of a {type(module).__name__} has changed")
    exec("\n".join([*lines, "    return None"]), scope)
    return scope["changed"]
