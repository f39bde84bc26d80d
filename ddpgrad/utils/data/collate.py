"""How samples become a batch: the values at one place of all samples are stacked into a tensor."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from ..._tensor import Tensor, wrap
from ...backend import dtype as dtypes


def default_collate(batch: Sequence[Any]) -> Any:
    """Make one batch of samples of like structure.

    Tensors, arrays and numbers get a new first dimension; Python floats become float64
    and ints int64. Mappings, named tuples and sequences are gone into (a tuple comes
    back as a list, as in PyTorch); strings and bytes stay a list. TypeError for anything
    else, RuntimeError for sequences of different lengths.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        from ... import stack

        return stack(list(batch), 0)
    if isinstance(first, np.ndarray):
        return default_collate([default_convert(array) for array in batch])
    if isinstance(first, float):
        return wrap(np.array(batch, dtype=np.float64))
    if isinstance(first, (bool, int)):
        numbers = np.array(batch)
        floating = numbers.dtype.kind == "f"
        return wrap(numbers.astype(dtypes.get_default_dtype().numpy) if floating else numbers)
    if isinstance(first, np.generic) and first.dtype in dtypes.BY_NUMPY:
        return wrap(np.array(batch))
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, Mapping):
        return _like(first, {key: default_collate([sample[key] for sample in batch]) for key in first})
    if isinstance(first, Sequence):
        lengths = sorted({len(sample) for sample in batch})
        if len(lengths) > 1:
            raise RuntimeError(
                f"default_collate: the samples of a batch have different lengths ({lengths}); "
                "pad them in the dataset or pass a collate_fn"
            )
        columns = [default_collate(column) for column in zip(*batch, strict=True)]
        return _named(first, columns) if hasattr(first, "_fields") else columns
    raise _refusal("default_collate", first)


def default_convert(sample: Any) -> Any:
    """Turn the arrays inside one sample into tensors, without a batch dimension."""
    if isinstance(sample, (np.ndarray, np.generic)):
        if sample.dtype not in dtypes.BY_NUMPY:
            raise _refusal("default_convert", sample)
        return wrap(np.asarray(sample))
    if isinstance(sample, Mapping):
        return _like(sample, {key: default_convert(value) for key, value in sample.items()})
    if isinstance(sample, Sequence) and not isinstance(sample, (str, bytes)):
        values = [default_convert(value) for value in sample]
        return _named(sample, values) if hasattr(sample, "_fields") else values
    return sample


def _like(mapping: Mapping[Any, Any], values: dict[Any, Any]) -> Mapping[Any, Any]:
    """`values` in a mapping of the kind of `mapping`, its other attributes kept."""
    if type(mapping) is dict or not isinstance(mapping, MutableMapping):
        return values
    out = copy.copy(mapping)
    out.update(values)
    return out


def _named(first: Any, values: list[Any]) -> Any:
    return type(first)(*values)


def _refusal(function: str, value: Any) -> TypeError:
    kind = f"an array of {value.dtype}" if isinstance(value, (np.ndarray, np.generic)) else type(value)
    return TypeError(
        f"{function}: a sample may hold tensors, numeric arrays, numbers, strings, mappings and sequences; "
        f"found {kind}. Pass a collate_fn that handles it"
    )
