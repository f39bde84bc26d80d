"""Names for type annotations, as in `torch.types`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

from ..backend.device import Device as _Device
from ..backend.dtype import DType
from ..core.tensor import Size, Tensor

_int, _float, _bool, _size = int, float, bool, Size | list[int] | tuple[int, ...]
_dtype: TypeAlias = DType
_device: TypeAlias = _Device
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]

Device: TypeAlias = _Device | str | int | None
Number: TypeAlias = int | float | bool
FileLike: TypeAlias = str | os.PathLike[str] | Any

__all__ = ["Device", "FileLike", "Number"]
