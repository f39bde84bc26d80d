"""`parallelize_module`: styles for the parts of a module, by name.

Source of names: https://pytorch.org/docs/stable/distributed.tensor.parallel.html
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

from ....nn.modules.module import Module
from ...device_mesh import DeviceMesh, current_mesh
from .styles import ParallelStyle


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Apply a style to `module`, or styles to its parts; returns `module`.

    parallelize_plan: a style, or styles by the names of parts, in which `*` and `?` stand for names at one level, and "" is
    `module` itself. src_data_rank: the rank of the mesh whose values parameters take; None: each rank's own.
    """
    mesh = device_mesh or current_mesh()
    if mesh.ndim != 1:
        raise ValueError(
            f"parallelize_module: device_mesh must have one dimension, got {mesh}: pass its part along one, as mesh['tp']"
        )
    if parallelize_plan is None:
        warnings.warn(
            "No parallelize_plan is provided and auto-parallel is not supported at the moment, so this parallelize_module call "
            "will do nothing.",
            stacklevel=2,
        )
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, Mapping):
        raise TypeError(
            f"Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, {type(parallelize_plan)} found!"
        )
    for path, style in parallelize_plan.items():
        name, _, rest = path.partition(".")
        parts: list[Module] = (
            [module] if not path else [p for n, p in module.named_children() if fnmatch(n, name)]
        )
        if not parts:
            warnings.warn(
                f"Parallelize plan key '{path}' could not be resolved: no submodule matching token '{name}' in module {module}, "
                "skipping this plan entry.",
                stacklevel=2,
            )
        for part in parts:
            below: Any = {rest: style} if rest else style
            parallelize_module(part, mesh, below, src_data_rank=src_data_rank)
    return module
