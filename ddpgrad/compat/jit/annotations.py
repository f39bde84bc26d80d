"""`torch.jit.annotations`: types that PyTorch's compiler reads."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035


class _BroadcastingList:
    """`BroadcastingList2[int]` is a list of ints, or one int for all places."""

    def __getitem__(self, kind: Any) -> Any:
        return Union[kind, List[kind]]  # noqa: UP006, UP007


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _BroadcastingList()
BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = BroadcastingList1

__all__ = [
    "Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "BroadcastingList4", "BroadcastingList5",
    "BroadcastingList6", "Dict", "List", "Optional", "Tuple", "Union",
]  # fmt: skip
