"""`load`: a checkpoint into the tensors of a state dict, whoever has which rows."""

from __future__ import annotations

import copy
import difflib
import os
import warnings
from collections.abc import Mapping
from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.errors import CheckpointError
from ...core.tensor import Tensor
from ...ops.creation.factories import empty
from ..process_group import ProcessGroup
from ..tensor import DTensor
from .api import CheckpointException, Crew, telling_of
from .default_planner import DefaultLoadPlanner, checked
from .filesystem import STATE, FileSystemReader, Saved, place_of
from .leaves import Leaf, leaves, local, states


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: FileSystemReader | None = None,
    planner: DefaultLoadPlanner | None = None,
    process_group: ProcessGroup | None = None,
    no_dist: bool = False,
) -> None:
    """Load the checkpoint in the folder `checkpoint_id` into `state_dict`, in place.

    Tensors are overwritten, numbers and other plain data are replaced, objects with `load_state_dict` get their state by
    that. Each rank reads the rows that it has, by however many ranks they were written. What the checkpoint holds besides is
    left out. Every byte is checked, and every shape, on all ranks, before anything is changed. CheckpointException on all
    ranks if the checkpoint is damaged, or does not fit on one.
    """
    options = checked(planner, DefaultLoadPlanner)
    reader: FileSystemReader = place_of(checkpoint_id, storage_reader, FileSystemReader)
    crew = Crew.of(process_group, no_dist)
    state: dict[str, Any] = {}
    crew.all(lambda: state.update(states(state_dict)))
    asked = {key for key in state_dict if state[key] is not state_dict[key]}
    found: list[tuple[Leaf, Saved, str]] = []

    def match() -> Any:
        folder, manifest = reader.verified()
        contents = reader.contents(folder, manifest)
        for key, leaf in leaves(state).items():
            if key in contents:
                _check(leaf.value, contents[key], key)
                found.append((leaf, contents[key], key))
            elif not options.allow_partial_load and not (isinstance(leaf.value, Mapping) and not leaf.value):
                raise CheckpointError(_missing(key, contents, str(folder)))
        return str(folder), [file.sha256 for file in manifest.objects[STATE].files.values()]

    seen = crew.all(match)
    for rank, (folder, digests) in enumerate(seen):
        if digests != seen[0][1]:
            raise CheckpointException(
                f"rank {rank} sees another checkpoint in {folder} than rank 0: the folder must be shared"
            )

    def fill() -> None:
        for leaf, saved, key in found:
            with telling_of(f"{key!r} of {saved.file} cannot be loaded"):
                leaf.owner[leaf.name] = _filled(leaf.value, saved)
        for key in sorted(asked):
            with telling_of(f"the load_state_dict() of {key!r}, a {type(state_dict[key]).__name__}, failed"):
                state_dict[key].load_state_dict(state[key])

    crew.all(fill)
    state_dict.update({key: state[key] for key in state_dict.keys() - asked})


def _check(value: Any, saved: Saved, key: str) -> None:
    """CheckpointError where `saved` does not fit the place of `value`."""
    if isinstance(value, Tensor) != saved.is_tensor:
        kinds = ["a tensor" if isinstance(v, Tensor) else type(v).__name__ for v in (saved.example, value)]
        raise CheckpointError(
            f"{saved.file}: {key!r} is {kinds[0]} there; expected {kinds[1]}, as in the state dict"
        )
    if isinstance(value, Tensor) and list(value.shape) != saved.shape:
        raise CheckpointError(
            f"{saved.file}: {key!r} has the shape {saved.shape}; expected {list(value.shape)}, as in the state dict"
        )
    if isinstance(value, Tensor) and value.is_meta:
        raise CheckpointError(
            f"{key!r} is on the device meta and has no elements to load into: call to_empty() before"
        )


def _missing(key: str, contents: Mapping[str, Any], folder: str) -> str:
    near = difflib.get_close_matches(key, contents, 3) or list(contents)[:3]
    return (
        f"checkpoint {folder} holds no {key!r}, which the state dict has; it holds {len(contents)} others, such as "
        f"{', '.join(map(repr, near))}. DefaultLoadPlanner(allow_partial_load=True) leaves such keys as they are"
    )


def _filled(value: Any, saved: Saved) -> Any:
    """What takes the place of `value`: itself, with the elements of `saved`, if it is a tensor."""
    if not isinstance(value, Tensor):
        return copy.deepcopy(saved.value)
    if isinstance(value, DTensor) and not value.is_by_rows:
        whole = empty(value.shape, dtype=value.dtype, device=value.device)
        return value.copy_(_filled(whole, saved))
    to, mine = local(value)
    with no_grad():
        for first, rows in saved.rows.items():
            if not value.ndim:
                to.copy_(rows)
                continue
            start, stop = max(first, mine.start), min(first + len(rows), mine.stop)
            if start < stop:
                to[start - mine.start : stop - mine.start].copy_(rows[start - first : stop - first])
    return value


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: FileSystemReader,
    process_group: ProcessGroup | None = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: DefaultLoadPlanner | None = None,
) -> None:
    """`load`, as older programs call it."""
    warnings.warn("`load_state_dict` is deprecated. Please use `load` instead.", FutureWarning, stacklevel=2)
    load(
        state_dict,
        storage_reader=storage_reader,
        planner=planner,
        process_group=process_group,
        no_dist=no_dist,
    )
