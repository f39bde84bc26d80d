"""Python objects between ranks: plain data, Tensors within it, and after `allow_pickle` any object."""

from __future__ import annotations

import contextlib
import io
import pickle
import warnings
from typing import Any

from ..core import environment
from ..core.errors import CheckpointError
from ..files.serialization import load, save
from .protocol import plain_data

Packed = tuple[str, Any]


class _Pickle:
    """Whether this process lets pickles through, in both directions, and has said so."""

    allowed = False
    warned = False


def allow_pickle(allowed: bool = True) -> None:
    """Let object collectives of this process carry objects of any class, by pickle. Call it on all ranks.

    Unpickling runs code that the bytes name: allow it only where all ranks of the job can be trusted. Under
    `ddprun --as-torch` it is allowed from the start, with a warning when it is first needed.
    """
    _Pickle.allowed = _Pickle.warned = allowed


def pack(obj: Any) -> Packed:
    """`obj` as plain data for the way to other ranks, which `unpack` it.

    TypeError for an object of a class that is no plain data, unless pickle is allowed.
    """
    with contextlib.suppress(RecursionError):  # of what contains itself, which `save` can write
        if plain_data.is_plain(obj):
            return "plain", obj
    written = io.BytesIO()
    try:
        save(obj, written)
        load(io.BytesIO(written.getvalue()))  # as the others will
        return "saved", written.getvalue()
    except CheckpointError as error:
        needs = getattr(error, "needs", "")
        # Where it is within a container, the error says.
        if not needs and isinstance(obj, (list, tuple, dict, set, frozenset)):
            _require_pickle(f"an object that is sent ({error})")
        _require_pickle(f"a {needs or type(obj).__name__}")
        return "pickled", pickle.dumps(obj)


def unpack(packed: Packed) -> Any:
    """What a rank has packed. TypeError for a pickle that this rank has not allowed."""
    form, content = packed
    if form == "plain":
        return content
    if form == "saved":
        return load(io.BytesIO(content))
    _require_pickle("an object that another rank sent")
    return pickle.loads(content)


def _require_pickle(what: str) -> None:
    if not _Pickle.allowed and not environment.as_torch():
        raise TypeError(
            f"{what} is no plain data: between ranks go numbers, texts, bytes, lists, tuples, dicts, sets, arrays "
            "and Tensors. Convert it, or call ddpgrad.distributed.allow_pickle() on all ranks, if you trust them"
        )
    if not _Pickle.warned:
        _Pickle.warned = True
        warnings.warn(
            f"object collectives carry {what} by pickle, which runs code that other ranks name; "
            "torch.distributed.allow_pickle() says that this is meant",
            stacklevel=4,
        )
