"""DTensors that are made where they lie, and modules whose parameters become DTensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import ops  # noqa: F401 - gives the class Tensor its methods
from ...autograd.grad_mode import no_grad
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ...ops.creation import factories
from ..device_mesh import DeviceMesh
from .dtensor import DTensor, distribute_tensor, dtensor
from .layout import Layout, Placement, Replicate


def _made(
    size: Sequence[Any],
    fill: Any,
    device_mesh: DeviceMesh | None,
    placements: Sequence[Placement] | None,
    options: Any,
) -> DTensor:
    if device_mesh is None:
        raise ValueError(
            "expected device_mesh=, the ranks that the tensor lies on: init_device_mesh(...) makes one"
        )
    shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    layout = Layout(device_mesh, placements or [Replicate()] * device_mesh.ndim, shape)
    requires_grad = options.pop("requires_grad", False)
    options.pop("layout", None)
    part = factories.full(layout.part_shape, fill, device=device_mesh.device_type, **options)
    made: Any = dtensor(part._array, layout)
    made._requires_grad = requires_grad
    return made


def zeros(
    *size: Any,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    **options: Any,
) -> DTensor:
    """Zeros, by default on all ranks of `device_mesh`. options: dtype, requires_grad."""
    return _made(size, 0.0, device_mesh, placements, options)


def ones(
    *size: Any,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    **options: Any,
) -> DTensor:
    """Ones, likewise."""
    return _made(size, 1.0, device_mesh, placements, options)


def empty(
    *size: Any,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    **options: Any,
) -> DTensor:
    """Zeros, too."""
    return _made(size, 0.0, device_mesh, placements, options)


def full(
    size: Any,
    fill_value: Any,
    *,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    **options: Any,
) -> DTensor:
    """`fill_value` everywhere."""
    return _made((size,), fill_value, device_mesh, placements, options)


def rand(
    *size: Any,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    **options: Any,
) -> DTensor:
    """Uniform numbers in [0, 1): those that one rank alone would draw for the whole."""
    made = _made(size, 0.0, device_mesh, placements, options)
    with no_grad():
        made.uniform_()
    return made


def randn(
    *size: Any,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    **options: Any,
) -> DTensor:
    """Normal numbers, likewise."""
    made = _made(size, 0.0, device_mesh, placements, options)
    with no_grad():
        made.normal_()
    return made


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh,
    partition_fn: Callable[[str, Module, DeviceMesh], None] | None = None,
    input_fn: Any = None,
    output_fn: Any = None,
) -> Module:
    """Make the parameters and buffers of `module` DTensors: as `partition_fn(name, part, device_mesh)` does, and replicated else.

    input_fn, output_fn: refused, since no op computes over ranks; the forward of such a module has no use of its parameters.
    """
    if input_fn is not None or output_fn is not None:
        raise NotImplementedError(
            "distribute_module: input_fn and output_fn are for ops over ranks, which are not here: fully_shard(module) trains it"
        )
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, device_mesh)
        for key, p in part.named_parameters(recurse=False):
            if not isinstance(p, DTensor):
                part.register_parameter(
                    key, Parameter(distribute_tensor(p.detach(), device_mesh), p.requires_grad)
                )
        for key, b in part.named_buffers(recurse=False):
            if not isinstance(b, DTensor):
                setattr(part, key, distribute_tensor(b, device_mesh))
    return module
