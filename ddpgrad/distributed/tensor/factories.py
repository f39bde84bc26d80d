"""DTensors that are made where they lie, and modules whose parameters become DTensors."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ... import ops  # noqa: F401 - gives the class Tensor its methods
from ...autograd.grad_mode import no_grad
from ...backend.registry import to_device
from ...core import spans
from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ...ops.creation import factories
from ..device_mesh import DeviceMesh, current_mesh
from ..tensor_work import on_host
from .dtensor import DTensor, ShardedParameter, computing, dtensor
from .exchange import told
from .layout import Placement, Replicate, layout_of


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """`tensor` placed on the ranks of `device_mesh`, by default replicated, with the values of its rank `src_data_rank`.

    src_data_rank: None: each rank takes its part of what it has itself. Collective otherwise.
    """
    computing()
    device_mesh = device_mesh or current_mesh()
    if tensor._grad_fn is not None:
        raise RuntimeError(
            "`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!"
        )
    layout = layout_of(device_mesh, placements or [Replicate()] * device_mesh.ndim, tensor.shape)
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != device_mesh:
            raise ValueError(
                f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh {device_mesh}."
            )
        if tensor.placements != layout.placements:
            raise ValueError(
                f"Cannot distribute a DTensor with placements {tensor.placements} to a different placements "
                f"{list(layout.placements)}. do you want to call `redistribute` instead?"
            )
        return tensor
    array = tensor._array
    if not tensor.is_meta:
        host = on_host(tensor).copy()
        if src_data_rank is not None:
            for group in device_mesh.get_all_groups():
                began = spans.now()
                group.communicator.broadcast(host, src_data_rank, "distribute_tensor")
                told("c10d.broadcast_", group.communicator, host, began)
        everywhere = layout.placed([Replicate()] * device_mesh.ndim)
        part = everywhere.moved(host, layout.placements, "distribute_tensor")  # nobody waits for others
        array = to_device(part, tensor.device)
    else:
        array = array[layout.index]
    cls = ShardedParameter if isinstance(tensor, Parameter) else DTensor
    out = dtensor(array, layout, cls)
    out._requires_grad = tensor._requires_grad
    return out


def _made(
    size: Sequence[Any],
    fill: Any,
    device_mesh: DeviceMesh | None,
    placements: Sequence[Placement] | None,
    options: Any,
) -> DTensor:
    device_mesh = device_mesh or current_mesh()
    computing()
    shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    layout = layout_of(device_mesh, placements or [Replicate()] * device_mesh.ndim, shape)
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
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Module, DeviceMesh], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> Module:
    """Make the parameters and buffers of `module` DTensors: as `partition_fn(name, part, device_mesh)` does, and replicated else.

    input_fn(module, inputs, device_mesh): what forward is given in place of its inputs. output_fn(module, outputs,
    device_mesh): what is returned in place of its outputs.
    """
    if getattr(module, "_distribute_module_applied", False):
        raise RuntimeError(
            "distribute_module should only be called once on a module, but it has already been called on this module!"
        )
    mesh = device_mesh or current_mesh()
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, mesh)
        for key, p in part.named_parameters(recurse=False):
            if not isinstance(p, DTensor):
                part.register_parameter(key, Parameter(distribute_tensor(p.detach(), mesh), p.requires_grad))
        for key, b in part.named_buffers(recurse=False):
            if not isinstance(b, DTensor):
                setattr(part, key, distribute_tensor(b, mesh))
    if input_fn is not None:
        enter = _of_module("input_fn", input_fn)
        module.register_forward_pre_hook(lambda part, inputs: enter(part, inputs, mesh))
    if output_fn is not None:
        leave = _of_module("output_fn", output_fn)
        module.register_forward_hook(lambda part, inputs, outputs: leave(part, outputs, mesh))
    module._distribute_module_applied = True
    return module


def _of_module(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with the module as its first argument, as it once had none."""
    count = len(inspect.signature(function).parameters)
    if count == 3:
        return function
    if count != 2:
        raise ValueError(f"{name} should take in 3 arguments, but got {count} arguments!")
    given = "inputs" if name == "input_fn" else "outputs"
    warnings.warn(
        f"Deprecating {name} that takes two arguments ({given}, device_mesh), please use {name} that takes in (module, {given}, "
        "device_mesh) instead!",
        FutureWarning,
        stacklevel=3,
    )
    return lambda part, value, mesh: function(value, mesh)
