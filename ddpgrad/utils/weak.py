"""`torch.utils.weak`: references that do not keep alive, told apart by identity, and a dictionary of them."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any
from weakref import ref

from ..core.tensor import Tensor


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dictionary by identity of its keys, tensors for instance. An entry goes when nothing else has its key."""

    def __init__(self, entries: Any = None, ref_type: Any = None) -> None:
        self._entries: dict[int, tuple[ref[Any], Any]] = {}
        self.update(() if entries is None else entries)

    def __getitem__(self, key: Any) -> Any:
        known, value = self._entries[id(key)]
        if known() is not key:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        entries, place = self._entries, id(key)

        def forget(gone: ref[Any]) -> None:
            if place in entries and entries[place][0] is gone:
                del entries[place]

        entries[place] = ref(key, forget), value

    def __delitem__(self, key: Any) -> None:
        self[key]
        del self._entries[id(key)]

    def __iter__(self) -> Iterator[Any]:
        keys = [known() for known, _ in self._entries.values()]
        return (key for key in keys if key is not None)

    def __len__(self) -> int:
        return len(self._entries)


WeakTensorKeyDictionary = WeakIdKeyDictionary


class WeakIdRef(ref[Any]):
    """A weak reference that equals those of the same object, whatever the object equals."""

    def __init__(self, key: Any, callback: Any = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        own = self()
        if own is not None and isinstance(other, ref):
            return own is other()
        return self is other

    def __ne__(self, other: object) -> bool:
        return not self == other


class TensorWeakRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise AssertionError(f"expected torch.Tensor, got {type(tensor)}.")
        self.ref = ref(tensor)

    def __call__(self) -> Tensor | None:
        return self.ref()
