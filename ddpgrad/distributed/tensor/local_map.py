"""`local_map`: functions of ordinary tensors on the parts of DTensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...core.tensor import Tensor
from ..device_mesh import DeviceMesh
from .dtensor import DTensor
from .layout import Placement


def local_map(
    func: Callable[..., Any] | None = None,
    out_placements: Any = None,
    in_placements: Any = None,
    in_grad_placements: Any = None,
    device_mesh: DeviceMesh | None = None,
    *,
    redistribute_inputs: bool = False,
) -> Callable[..., Any]:
    """A function that calls `func` with this rank's parts, and takes what it returns for parts placed as `out_placements` say.

    out_placements: of the result, or a tuple with placements for each; None for what is no tensor. in_placements: those that
    arguments have to have, which else is an error, or with `redistribute_inputs` are brought about; None for all others.
    in_grad_placements: how gradients of the parts lie.
    """
    if func is None:
        return functools.partial(
            local_map, out_placements=out_placements, in_placements=in_placements, in_grad_placements=in_grad_placements,
            device_mesh=device_mesh, redistribute_inputs=redistribute_inputs,
        )  # fmt: skip

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        mesh, given = device_mesh, []
        if in_placements is not None and len(in_placements) != len(args):
            raise AssertionError(
                f"in_placements length {len(in_placements)} does not match the number of arguments {len(args)}"
            )
        for i, value in enumerate(args):
            if not isinstance(value, DTensor):
                given.append(value)
                continue
            mesh = mesh or value.device_mesh
            wanted = None if in_placements is None else in_placements[i]
            if wanted is not None and value._layout.placed(wanted).placements != value.placements:
                if not redistribute_inputs:
                    raise ValueError(
                        f"arg {value} in local_map has a mismatched placements: it is {value.placements}, and in_placements says "
                        f"{wanted}. If redistribute_inputs is wanted, set redistribute_inputs=True to local_map."
                    )
                value = value.redistribute(placements=wanted)
            grads = None if in_grad_placements is None else in_grad_placements[i]
            given.append(value.to_local(grad_placements=grads))
        found = func(*given, **kwargs)
        if mesh is None or out_placements is None:
            return found
        if not isinstance(found, (tuple, list)):
            return _joined(found, mesh, _of_one(out_placements))
        if len(found) != len(out_placements):
            raise AssertionError("local_map requires one PlacementType be provided for each output value")
        return type(found)(
            _joined(one, mesh, places) for one, places in zip(found, out_placements, strict=True)
        )

    return mapped


def _of_one(placements: Any) -> Any:
    """The placements of a single result, which may be said as a tuple of one."""
    return placements if not placements or isinstance(placements[0], Placement) else placements[0]


def _joined(value: Any, mesh: DeviceMesh, placements: Sequence[Placement] | None) -> Any:
    return (
        DTensor.from_local(value, mesh, placements)
        if isinstance(value, Tensor) and placements is not None
        else value
    )
