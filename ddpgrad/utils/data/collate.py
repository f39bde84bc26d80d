"""Collation: samples stacked into a batch."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core.tensor import Tensor, wrap


def default_collate(batch: Sequence[Any]) -> Any:
    """Make one batch of samples of like structure.

    Tensors, arrays and numbers get a new first dimension; Python floats become float64
    and ints int64. Mappings, named tuples and sequences are gone into (a tuple comes
    back as a list, as in PyTorch); strings and bytes stay as they are. TypeError for anything
    else, RuntimeError for sequences of different lengths.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Any:
    """Like `default_collate`, with what to do for each type given by the program.

    collate_fn_map: from a type, or a tuple of types, to a function that is called with a list of values and
    with `collate_fn_map=`; an exact type goes first, then the first of which the first value is an instance.
    """
    first, known = batch[0], collate_fn_map or {}
    function = known.get(type(first))
    if function is None:
        function = next((known[kind] for kind in known if isinstance(first, kind)), None)
    if function is not None:
        return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        columns = {
            key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map) for key in first
        }
        return like(first, columns)
    if isinstance(first, Sequence) and not isinstance(first, (str, bytes)):
        lengths = sorted({len(sample) for sample in batch})
        if len(lengths) > 1:
            raise RuntimeError(
                f"each element in list of batch should be of equal size; found lengths {lengths}. "
                "Pad the samples in the dataset or pass a collate_fn"
            )
        columns = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=True)]
        return in_kind_of(first, columns)
    raise _refusal("default_collate", first)


def collate_tensor_fn(batch: Sequence[Tensor], *, collate_fn_map: Any = None) -> Tensor:
    from ... import stack

    return stack(list(batch), 0)


def collate_numpy_array_fn(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    if batch[0].dtype not in dtypes.BY_NUMPY:
        raise _refusal("default_collate", batch[0])
    return wrap(np.stack(batch))


def collate_float_fn(batch: Sequence[float], *, collate_fn_map: Any = None) -> Tensor:
    numbers = np.array(batch)
    return wrap(numbers) if numbers.dtype == np.float64 else _tensor(batch, dtypes.float64)


def collate_int_fn(batch: Sequence[int], *, collate_fn_map: Any = None) -> Tensor:
    numbers = np.array(batch)
    return wrap(numbers) if numbers.dtype in (np.int64, np.bool_) else _tensor(batch, None)


def _tensor(batch: Sequence[Any], dtype: dtypes.DType | None) -> Tensor:
    """What is more than numbers of one type: NumPy makes texts of 1 and "a", and NaN of None."""
    from ... import tensor

    return tensor(list(batch), dtype=dtype)


def collate_str_fn(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Sequence[Any]:
    return batch


np_str_obj_array_pattern = re.compile(r"[SaUO]")
"""Found in `dtype.str` of arrays of texts and objects, which no tensor can hold."""

CollateMap = dict[Any, Callable[..., Any]]
default_collate_fn_map: CollateMap = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_array_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def default_convert(data: Any) -> Any:
    """Turn the arrays inside one sample into tensors, without a batch dimension; those of texts and objects stay."""
    if isinstance(data, (np.ndarray, np.generic)):
        if np_str_obj_array_pattern.search(data.dtype.str):
            return data
        if data.dtype not in dtypes.BY_NUMPY:
            raise _refusal("default_convert", data)
        return wrap(np.asarray(data))
    if isinstance(data, Mapping):
        return like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        values = [default_convert(value) for value in data]
        return in_kind_of(data, values)
    return data


def like(mapping: Mapping[Any, Any], values: dict[Any, Any]) -> Mapping[Any, Any]:
    """`values` in a mapping of the kind of `mapping`, its other attributes kept."""
    if type(mapping) is dict or not isinstance(mapping, MutableMapping):
        return values
    out = copy.copy(mapping)
    out.update(values)
    return out


def in_kind_of(first: Sequence[Any], values: list[Any]) -> Any:
    """`values` in a sequence of the kind of `first`, but a list for a plain tuple, and for what takes no items."""
    if hasattr(first, "_fields"):
        return type(first)(*values)
    if type(first) in (list, tuple) or not isinstance(first, MutableSequence):
        return values
    out = copy.copy(first)
    for i, value in enumerate(values):
        out[i] = value
    return out


def _refusal(function: str, value: Any) -> TypeError:
    kind = value.dtype if isinstance(value, (np.ndarray, np.generic)) else type(value)
    return TypeError(
        f"{function}: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {kind}. Pass a collate_fn that handles it"
    )
