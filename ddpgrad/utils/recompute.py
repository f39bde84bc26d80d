"""The recomputation behind `checkpoint`: placeholders in the graph, and the second run that fills them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from weakref import ref

from ..autograd import enable_grad, engine
from ..autograd.nodes import Node, observers
from ..autograd.passes import carried
from ..autograd.saved import Packed, current_hooks, packed, saved_tensors_hooks
from ..core.errors import RecomputeError
from ..core.tensor import Tensor


class _Settings(threading.local):
    """Of this thread: what overrides `debug` and `early_stop` of single checkpoints."""

    debug: bool | None = None
    early_stop: bool | None = None


_settings = _Settings()
carried.append(_settings)


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Within the block, every checkpoint is made with this `early_stop`."""
    before, _settings.early_stop = _settings.early_stop, enable
    try:
        yield
    finally:
        _settings.early_stop = before


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Within the block, every checkpoint is made with this `debug`; None: as each one says."""
    before, _settings.debug = _settings.debug, enabled
    try:
        yield
    finally:
        _settings.debug = before


class _Place:
    """What a node keeps instead of a tensor: the number of the tensor among those of its frame."""

    __slots__ = ("__weakref__", "number")

    def __init__(self, number: int) -> None:
        self.number = number


class _Kind(NamedTuple):
    """What must be the same in both runs."""

    shape: tuple[int, ...]
    dtype: Any
    device: Any

    @classmethod
    def of(cls, tensor: Tensor) -> _Kind:
        return cls(tuple(tensor.shape), tensor.dtype, tensor.device)


class _Enough(BaseException):
    """Ends the second run early. Not an Exception: the function that runs may not catch it."""


class _Argument:
    """A tensor argument of the first run, kept for the second; packed where hooks surround the checkpoint.

    So what a checkpoint inside another needs is itself computed again.
    """

    def __init__(self, tensor: Tensor) -> None:
        hooks = current_hooks()
        self.requires_grad = tensor.requires_grad
        self.kept: Tensor | Packed = tensor if hooks is None else packed(tensor, *hooks)
        self.version = None if hooks is not None or tensor.is_inference() else tensor._version

    def value(self) -> Tensor:
        if isinstance(self.kept, Packed):
            tensor = self.kept.unpack()
            return (
                tensor if tensor.requires_grad == self.requires_grad else _alike(tensor, self.requires_grad)
            )
        if self.version is not None and self.kept._version != self.version:
            raise RecomputeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: an "
                f"argument of checkpoint() (shape {list(self.kept.shape)}) is at version {self.kept._version}; expected "
                f"version {self.version} instead. Write the operation out of place, or clone() first."
            )
        return self.kept


def _alike(tensor: Tensor, requires_grad: bool) -> Tensor:
    return tensor.detach().requires_grad_(requires_grad)


class Frame:
    """One checkpoint: how to run it again, and the places that the second run fills.

    The nodes hold their places, places are held by nobody else: what no node needs any more is
    not kept. Values wait in `values`, for each backward pass, from the second run until their
    node asks, at most until the pass ends.
    """

    def __init__(
        self,
        again: Callable[..., None],
        args: tuple[Any, ...],
        check_kinds: bool,
        debug: bool,
        early_stop: bool,
    ) -> None:
        self.again = again
        self.args = tuple([_Argument(a) if isinstance(a, Tensor) else a for a in args])
        self.check_kinds = check_kinds
        self.early_stop = early_stop if _settings.early_stop is None else _settings.early_stop
        debug = debug if _settings.debug is None else _settings.debug
        self.names: tuple[list[str], list[str]] | None = ([], []) if debug else None
        self.places: list[ref[_Place]] = []
        self.kinds: list[_Kind] = []
        self.values: dict[Any, dict[int, Tensor]] = {}
        self.complete = False

    @contextlib.contextmanager
    def first_run(self) -> Iterator[None]:
        """Within the block, saved tensors become places."""

        def pack(tensor: Tensor) -> _Place:
            place = _Place(len(self.places))
            self.places.append(ref(place))
            self.kinds.append(_Kind.of(tensor))
            return place

        with saved_tensors_hooks(pack, self._value), self._naming(0):
            yield
        self.complete = True

    def _value(self, place: _Place) -> Tensor:
        if not engine.running():
            # Somebody looks at a saved tensor outside of backward: nothing else is wanted.
            return self._second_run()[place.number]
        running = engine.current_pass()
        values = self.values.get(running)
        if values is None:
            values = self.values[running] = self._second_run()
            engine.queue_cleanup(lambda: self.values.pop(running, None))
        if place.number not in values:
            raise RecomputeError(
                "utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked once. If you are "
                "calling ctx.saved_tensors in backward, make sure to do so only once."
            )
        return values.pop(place.number)

    def _second_run(self) -> dict[int, Tensor]:
        """Run again; what was saved, by number, as far as a node still holds its place."""
        kinds: list[_Kind] = []
        values: dict[int, Tensor] = {}

        def pack(tensor: Tensor) -> Tensor:
            number = len(kinds)
            kinds.append(_Kind.of(tensor))
            if number < len(self.places) and self.places[number]() is not None:
                # Without its history, which is this run's; what has none stays the object that it is.
                values[number] = tensor.detach() if tensor.requires_grad else tensor
            # A function that differentiates by itself asks before its first run has ended.
            if (self.early_stop or not self.complete) and len(kinds) == len(self.places):
                raise _Enough
            if len(kinds) > len(self.places):
                raise self._error(
                    "trying to save more tensors during recomputation than during the original forward pass."
                )
            return tensor.detach()

        inputs = [a.value() if isinstance(a, _Argument) else a for a in self.args]
        with contextlib.suppress(_Enough), saved_tensors_hooks(pack, _itself), self._naming(1), enable_grad():
            self.again(*inputs)
        self._compare(kinds)
        return values

    def _compare(self, kinds: list[_Kind]) -> None:
        if len(kinds) != len(self.kinds):
            raise self._error(
                "A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.kinds)}\n"
                f"Number of tensors saved during recomputation: {len(kinds)}"
            )
        if not self.check_kinds:
            return
        different = [
            f"tensor at position {i}:\nsaved metadata: {_shown(first)}\nrecomputed metadata: {_shown(second)}"
            for i, (first, second) in enumerate(zip(self.kinds, kinds, strict=True))
            if first != second
        ]
        if different:
            raise self._error(
                "Recomputed values for the following tensors have different metadata than during the forward pass.\n"
                + "\n".join(different)
            )

    def _error(self, text: str) -> RecomputeError:
        if self.names is None:
            return RecomputeError(
                f"utils.checkpoint: {text}\nThe function does not compute the same twice. Pass `debug=True` to "
                "checkpoint() to see the operations of both runs."
            )
        first, second = self.names
        return RecomputeError(
            f"utils.checkpoint: {text}\nYou are seeing this error because you passed `debug=True` to checkpoint.\n"
            f"Operations of the original forward: {', '.join(first)}\n"
            f"Operations of the recomputation: {', '.join(second)}"
        )

    @contextlib.contextmanager
    def _naming(self, run: int) -> Iterator[None]:
        """Within the block of a checkpoint with `debug`, note the name of every recorded operation."""
        if self.names is None:
            yield
            return
        names = self.names[run]
        names.clear()

        def note(node: Node) -> None:
            names.append(node.name())

        observers.insert(0, note)  # before the hooks on saved tensors, which may end the run
        try:
            yield
        finally:
            observers.remove(note)


def _shown(kind: _Kind) -> dict[str, Any]:
    return kind._asdict()


def _itself(value: Tensor) -> Tensor:
    return value
