"""Where parameters may be unused: what the ranks tell each other at the end of a backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .reducer import Reducer


def share_used(reducer: Reducer) -> None:
    """A parameter that some rank used has a gradient on all; one that none used keeps what it had. Collective."""
    used, late = told = np.zeros((2, len(reducer.parameters)), np.uint8)
    used[list(reducer.used)] = 1
    if reducer.backward_runs:
        late[reducer.unused] = 1
    reducer.communicator.all_reduce(told, "max", "which parameters were used")
    for i in np.flatnonzero(used).tolist():
        view = reducer.memory(i)
        if view is not None:
            reducer.parameters[i]._grad = view
    if reducer.hook is None:
        # What some rank did not use now may come late again: nothing else waits for it.
        reducer.order = sorted(reducer.buckets, key=lambda bucket: late[list(bucket.layout.indices)].any())
