"""`torch.utils.weak`: a dictionary whose keys are told apart by identity, and are not kept alive."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any
from weakref import ref


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
