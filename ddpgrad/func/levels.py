"""The transforms that a thread is in, for custom Functions and random generators: what each makes of `Function.apply` and draws.

`Function.apply` asks the innermost level (`core/modes.py`, `mode.levels`). vmap calls the Function's own rule, if it
has one, outside of itself; a derivative records the Function, and runs its forward outside of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from .. import Tensor
from ..autograd.crossing import Level, enter
from ..autograd.function import Function
from ..backend.mapped.array import MappedArray, same
from ..core.errors import NotMapped
from ..core.modes import at_once, mode
from ..random.generator import Generator
from .trees import flatten, spread


@contextmanager
def entered(level: Any) -> Iterator[None]:
    """A block within `level`."""
    before, mode.levels = mode.levels, (*mode.levels, level)
    try:
        yield
    finally:
        mode.levels = before


@contextmanager
def _outside() -> Iterator[None]:
    """A block outside of the innermost level."""
    before, mode.levels = mode.levels, mode.levels[:-1]
    try:
        yield
    finally:
        mode.levels = before


def _has_rule(function: type[Function]) -> bool:
    own = function.vmap is not Function.vmap
    if own and function.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {function.__name__}, but it has both generate_vmap_rule=True and an overridden "
            "vmap staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to "
            "avoid ambiguity."
        )
    return own


class Randomness:
    """What becomes of draws of random numbers in the calls that a transform makes of its function.

    how: 'error' refuses them, 'same' lets all calls draw the same, and 'different' leaves them alone.
    """

    def __init__(self, how: str) -> None:
        if how not in ("error", "different", "same"):
            raise RuntimeError(
                f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {how}"
            )
        self.how = how
        self._states: dict[Generator, Tensor] = {}

    def draw(self, generator: Generator) -> None:
        """A call is about to draw from `generator`."""
        if self.how == "error":
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap"
            )
        if self.how == "same" and generator not in self._states:
            self._states[generator] = generator.get_state()

    def again(self) -> None:
        """Another call begins."""
        for generator, state in self._states.items():
            generator.set_state(state)


class VmapInfo(NamedTuple):
    """What the `vmap` of a Function is told: how many examples its batch has, and vmap's `randomness`."""

    batch_size: int
    randomness: str


class Mapping:
    """The level of one example of `vmap`. whole: what all examples were given as it is. more: whether others follow."""

    at_once = False

    def __init__(self, randomness: Randomness, whole: Sequence[Any], more: bool) -> None:
        self.more = more
        self.info = VmapInfo(1, randomness.how)
        self.draw = randomness.draw
        self.whole = {id(value) for value in whole}

    def forward_of(self, function: type[Function]) -> Callable[..., Any] | None:
        """What runs as the forward of `function`; None where its rule is called instead."""
        return None if _has_rule(function) else function.forward

    def mapped(self, function: type[Function], args: tuple[Any, ...]) -> Any:
        """The rule of `function`, on a batch of this example."""
        leaves, rebuild = flatten(args)
        batched = [isinstance(x, Tensor) and id(x) not in self.whole for x in leaves]
        with _outside():
            if not any(batched):
                return function.apply(*args)
            batches = [x.unsqueeze(0) if b else x for x, b in zip(leaves, batched, strict=True)]
            dims = rebuild([0 if b else None for b in batched])
            result = function.vmap(self.info, dims, *rebuild(batches))
        if not (isinstance(result, tuple) and len(result) == 2):
            raise RuntimeError(
                "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure "
                f"compatible with the output; {function.__name__}.vmap returned {type(result).__name__}"
            )
        outputs, out_dims = result
        found, again = flatten(outputs)
        to = spread(out_dims, outputs, f"out_dims of {function.__name__}.vmap")
        batched_leaves = [(batch, x) for batch, x, b in zip(batches, leaves, batched, strict=True) if b]
        return again([_example(x, d, batched_leaves) for x, d in zip(found, to, strict=True)])


def _example(x: Any, dim: int | None, batches: Sequence[tuple[Tensor, Tensor]]) -> Any:
    """The example in output `x` of a rule. batches: those of one example that it was given, and what they were made of."""
    if dim is None:
        return x
    for batch, example in batches:
        # A batch that comes back, as an in-place Function returns it, is the example itself.
        if (
            dim == 0
            and x._versions is batch._versions
            and x.shape == batch.shape
            and x.data_ptr() == batch.data_ptr()
        ):
            return example
    return x.select(dim, 0)


class AtOnce:
    """The level of `vmap` that calls its function once, with all examples.

    within: the level of their arrays. arguments: the memory that the examples lie in, which others see.
    """

    at_once, more = True, False

    def __init__(self, randomness: Randomness, within: Level) -> None:
        self._randomness, self.within = randomness, within
        self.arguments: list[Any] = []

    def draw(self, generator: Generator) -> None:
        """What is drawn here is the same for all."""
        if self._randomness.how == "different":
            raise NotMapped
        self._randomness.draw(generator)

    def forward_of(self, function: type[Function]) -> Callable[..., Any]:
        """The forward of `function`, which is called for each example unless it says that it takes all."""
        if not function.takes_examples:
            raise NotMapped
        return function.forward

    def given(self, x: Tensor, dim: int) -> Tensor:
        """The argument `x`, which has the examples along `dim`, as the function sees it."""
        example = enter(x, dim, self.within)
        self.arguments.append(example._array.data.mem)
        return example

    def owns(self, array: Any) -> bool:
        """Whether nobody outside sees the memory of `array`, which has room for each example."""
        if not isinstance(array, MappedArray) or array.level != self.within.number or same(array):
            return False
        memory = array.data.mem
        return all(memory is not other for other in self.arguments)


class Derivative:
    """The level of `grad` and its like."""

    at_once = more = False

    def draw(self, generator: Generator) -> None:
        """Draws are left alone: the function is called once."""

    def forward_of(self, function: type[Function]) -> Callable[..., Any] | None:
        """The forward of `function`, by its vmap rule where an outer level is a vmap."""
        if at_once() and not function.takes_examples:
            raise NotMapped
        if not any(isinstance(level, Mapping) for level in mode.levels) or not _has_rule(function):
            return function.forward

        def forward(*args: Any) -> Any:
            with _outside():
                return function.apply(*args)

        return forward


DERIVATIVE = Derivative()


class Columns(Derivative):
    """The level of `jacfwd`, which is a vmap of a derivative in PyTorch. randomness: of that vmap."""

    def __init__(self, randomness: str) -> None:
        self.draw = Randomness(randomness).draw
