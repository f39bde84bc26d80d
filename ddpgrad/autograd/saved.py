"""Hooks on saved tensors: `saved_tensors_hooks`, `save_on_cpu`, `disable_saved_tensors_hooks`.

No op asks whether there are hooks. A node that is recorded while there are some is turned into
the kind that packs what it keeps (`ops/dispatch/packed.py`); all others stay as fast as they were.
Source of the behaviour: https://pytorch.org/docs/stable/autograd.html#hooks-for-saved-tensors
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..core.tensor import Tensor
from ..core.upcalls import pack_kept
from .grad_mode import mode
from .nodes import Node, observers
from .passes import carried

Pack = Callable[[Tensor], Any]
Unpack = Callable[[Any], Tensor]


class _Hooks(threading.local):
    """The hooks of this thread, innermost last, and why there may be none."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Pack, Unpack]] = []
        self.disabled: str | None = None


_hooks = _Hooks()
carried.append(_hooks)
_active = 0  # pairs of all threads
_lock = threading.Lock()


def current_hooks() -> tuple[Pack, Unpack] | None:
    """The innermost pair of this thread: the one that applies."""
    return _hooks.pairs[-1] if _hooks.pairs else None


def hooks_entered() -> int:
    """How many pairs this thread has."""
    return len(_hooks.pairs)


def leave_hooks(count: int) -> None:
    """Forget the innermost pairs of this thread until `count` are left."""
    global _active
    while len(_hooks.pairs) > count:
        _hooks.pairs.pop()
        with _lock:
            _active -= 1
            if not _active:
                observers.remove(pack_node)


def pack_node(node: Node) -> None:
    """Pack what `node` keeps, if this thread has hooks. The observer of new nodes."""
    hooks = current_hooks()
    if hooks is not None:
        pack_kept(node, *hooks)


class saved_tensors_hooks:
    """Within the block, `pack_hook(tensor)` says what to keep of a saved tensor, `unpack_hook` gives it back.

    Only the innermost pair applies. A `pack_hook` may not change its argument in place.
    """

    def __init__(self, pack_hook: Pack, unpack_hook: Unpack) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        global _active
        if _hooks.disabled is not None:
            raise RuntimeError(_hooks.disabled)
        with _lock:
            _active += 1
            if _active == 1:
                observers.append(pack_node)
        _hooks.pairs.append((self.pack_hook, self.unpack_hook))

    def __exit__(self, *exc: object) -> None:
        if _hooks.pairs:  # otherwise a hook has left the block before
            leave_hooks(len(_hooks.pairs) - 1)


class save_on_cpu(saved_tensors_hooks):
    """Within the block, saved tensors are moved to the CPU, and back to their device for backward.

    pin_memory: accepted for PyTorch's sake; copies are ordinary host memory.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> tuple[Any, Tensor]:
            return tensor.device, tensor.detach().cpu()

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, tensor = packed
            return tensor.to(device)

        super().__init__(pack, unpack)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Within the block, `saved_tensors_hooks` raises `RuntimeError(error_message)`."""
    if _hooks.pairs:
        raise RuntimeError(error_message)
    before, _hooks.disabled = _hooks.disabled, error_message
    try:
        yield
    finally:
        _hooks.disabled = before


class _Mutation(threading.local):
    """The block of `allow_mutation_on_saved_tensors` that this thread is in."""

    block: object = None


_mutation = _Mutation()
carried.append(_mutation)


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[object]:
    """Within the block, saved tensors may be changed in place afterwards: a copy of each is saved, at once.

    As in PyTorch, backward belongs into the block too (`AssertionError` outside), and blocks do not nest.
    """
    if _mutation.block is not None:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    block = _mutation.block = object()

    def unpack(copy: Tensor) -> Tensor:
        if _mutation.block is not block:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was "
                "recorded."
            )
        return copy

    try:
        with saved_tensors_hooks(lambda tensor: tensor.clone(), unpack):
            yield block
    finally:
        _mutation.block = None


class Packed(NamedTuple):
    """What a pack hook returned, and the hook that makes a tensor of it again."""

    value: Any
    unpack_hook: Unpack

    def unpack(self) -> Tensor:
        tensor = self.unpack_hook(self.value)
        if not isinstance(tensor, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(tensor).__name__}"
            )
        return tensor


def packed(tensor: Tensor, pack: Pack, unpack: Unpack) -> Packed:
    """`tensor` as `pack` keeps it. `RuntimeError` if the hook writes to it."""
    version = tensor._versions[0]
    previous, mode.enabled = mode.enabled, False
    try:
        value = pack(tensor)
    finally:
        mode.enabled = previous
    if tensor._versions[0] != version:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not "
            "be modified by in-place operations as this can lead to unexpected side-effects: clone() it in the hook."
        )
    return Packed(value, unpack)


class SavedTensor:
    """One saved tensor of a node, to which hooks can be given: what `node._raw_saved_…` is."""

    _replace: Callable[[Pack, Unpack], None] | None
    _empty: bool

    def __init__(self, *args: Any) -> None:
        raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden.")

    @classmethod
    def of(cls, replace: Callable[[Pack, Unpack], None] | None, empty: bool = False) -> SavedTensor:
        """The one whose hooks `replace` puts in place; None: it has some."""
        saved = cls.__new__(cls)
        saved._replace, saved._empty = replace, empty
        return saved

    def register_hooks(self, *hooks: Any) -> None:
        """Keep what `hooks[0](tensor)` makes of the saved tensor; `hooks[1]` makes it the tensor again.

        Once at most; `RuntimeError` otherwise.
        """
        if self._empty:
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        if self._replace is None:
            raise RuntimeError("Calling register_hooks on a saved tensor whose hooks have already been set")
        if len(hooks) != 2 or not all(map(callable, hooks)):
            raise TypeError(
                "register_hooks(): incompatible function arguments: expected (pack_hook, unpack_hook), got "
                f"({', '.join(type(hook).__name__ for hook in hooks)})"
            )
        self._replace(*hooks)
        self._replace = None


__all__ = [
    "SavedTensor",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "save_on_cpu",
    "saved_tensors_hooks",
]
