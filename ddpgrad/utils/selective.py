"""The modes of a selective checkpoint: the first run keeps results of some ops, and the second finds them again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

from ..core.tensor import Tensor
from ..library.aten import ATEN, OpOverload, OpOverloadPacket
from ._python_dispatch import TorchDispatchMode
from ._pytree import tree_map
from .checkpoint import CheckpointPolicy, Contexts, SelectiveCheckpointContext

Policy = Callable[..., CheckpointPolicy | bool]
Kept = defaultdict[Any, dict[int, Any]]

_SAVED = (True, CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
_COMPUTED_AGAIN, _TAKEN = object(), object()
_WHY = (
    "This can happen if the operations in the checkpointed region are nondeterministic or depend on global state that "
    "changed between forward and backward."
)


class _Counting(TorchDispatchMode):
    """Knows each op by its number among those of one kind."""

    def __init__(self, kept: Kept) -> None:
        super().__init__()
        self.kept = kept
        self.counts: dict[Any, int] = defaultdict(int)

    def number(self, func: Any) -> int:
        self.counts[func] += 1
        return self.counts[func] - 1


class _First(_Counting):
    """Keeps the results that the policy wants."""

    def __init__(self, policy: Policy, kept: Kept) -> None:
        super().__init__(kept)
        self.policy = policy

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is not ATEN.detach.default:
            context = SelectiveCheckpointContext(is_recompute=False, op_output=out)
            wanted = self.policy(context, func, *args, **(kwargs or {})) in _SAVED
            self.kept[func][self.number(func)] = tree_map(_Result, out) if wanted else _COMPUTED_AGAIN
        return out


class _Second(_Counting):
    """Gives the results that were kept."""

    def __init__(self, kept: Kept, mutable: bool) -> None:
        super().__init__(kept)
        self.mutable = mutable

    def __enter__(self) -> Any:
        self.counts.clear()
        return super().__enter__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is ATEN.detach.default:
            return func(*args, **(kwargs or {}))
        number = self.number(func)
        found = self.kept.get(func, {}).get(number)
        if found is None:
            raise RuntimeError(
                f"{func} (number {number}) encountered during backward but not found in storage. {_WHY}"
            )
        if found is _TAKEN:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region computed under "
                "selective activation checkpoint."
            )
        if found is _COMPUTED_AGAIN:
            return func(*args, **(kwargs or {}))
        self.kept[func][number] = _TAKEN
        return tree_map(lambda result: result.value(self.mutable), found)


class _Result:
    """A result that is kept, and its version."""

    def __init__(self, value: Any) -> None:
        self._value = value.detach() if isinstance(value, Tensor) else value
        self._version = value._version if isinstance(value, Tensor) else None

    def value(self, mutable: bool) -> Any:
        """The result; RuntimeError if it was changed since."""
        if self._version is not None and not mutable and self._value._version != self._version:
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated")
        return self._value


def contexts(chosen: Any, mutable: bool) -> Contexts:
    """What `create_selective_checkpoint_contexts` returns."""
    policy: Policy
    if isinstance(chosen, list):
        for op in chosen:
            if not isinstance(op, OpOverload):
                hint = (
                    f" Please name an overload, such as {op}.default."
                    if isinstance(op, OpOverloadPacket)
                    else ""
                )
                raise ValueError(
                    f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}.{hint}"
                )
        saved = frozenset(chosen)

        def listed(context: Any, op: Any, *args: Any, **kwargs: Any) -> bool:
            return op in saved

        policy = listed
    elif callable(chosen):
        policy = cast(Policy, chosen)
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept: Kept = defaultdict(dict)
    return _First(policy, kept), _Second(kept, mutable)
