"""Floats of 16 bits on a CPU: how compiled code reads and writes them, and their conversion.

The bits are NumPy's; which of the many NaNs a NaN becomes is the processor's choice.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from ..dtype import numpy_of, prepare_narrow
from ..layout import beside, empty_in_order, memory_order
from .moves import overwrite
from .threads import WORTH_SHARING, shared
from .vectormath import kernel, narrowed, processor_has, widened

Array = np.ndarray[Any, Any]

# As which integers compiled code gets the types of 16 bits, that the one is not taken for the other.
_STORED = {"bfloat16": np.dtype(np.uint16), "float16": np.dtype(np.int16)}
# Other processors than x86 have had instructions for it all along.
CONVERTS_FLOAT16 = platform.machine().lower() not in ("x86_64", "amd64") or processor_has("f16c")
if not CONVERTS_FLOAT16:
    del _STORED["float16"]


# Below this many elements NumPy is done before compiled code has started.
_SMALL = 1024


def is_half(dtype: np.dtype[Any]) -> bool:
    """True for a type of 16 bits that compiled code can read and write here."""
    return dtype.itemsize == 2 and dtype.name in _STORED and dtype.isnative


def stored(array: Array) -> Array:
    """`array` as compiled code takes it: see `widened` and `narrowed`."""
    return array.view(_STORED[array.dtype.name]) if is_half(array.dtype) else array


def cast(input: Array, dtype: Any) -> Array:
    """`input` as `dtype`, one of the types of 16 bits or float32 to another; elements lie as they did."""
    target = numpy_of(dtype)
    if input.size < _SMALL or input.dtype == target:
        return NotImplemented
    if not all(is_half(kind) or (kind.char == "f" and kind.isnative) for kind in (input.dtype, target)):
        if input.size < WORTH_SHARING or (input.dtype.kind == "c" and target.kind != "c"):
            return NotImplemented
        out = empty_in_order(input, input.shape, target, memory_order(input))
        overwrite(out, input)
        return out
    prepare_narrow()
    out, flat, vectors = beside(target, input)
    _convert(stored(vectors[0]), stored(flat))
    return out


@shared("target", "source")
@kernel
def _convert(source, target):
    for i in range(target.size):
        target[i] = narrowed(widened(source[i]), target)
