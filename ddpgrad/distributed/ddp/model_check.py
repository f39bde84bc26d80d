"""Whether a model can be trained in parallel: fit for it, alike on all ranks, and the same since it was wrapped."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...backend.cpu import mkl
from ...backend.layout import order_of_leaf
from ...core.errors import MismatchError
from ...core.size import strided
from ...core.tensor import Tensor
from ...nn.modules import registration
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ..communicator.communicator import Communicator
from ..protocol.guard import blaming

if TYPE_CHECKING:
    from ..device_mesh import DeviceMesh


def check_module(module: Any, caller: str) -> None:
    """TypeError for what is no module."""
    if not isinstance(module, Module):
        raise TypeError(f"{caller} takes one Module, got {type(module).__name__}: wrap each module by itself")


def wrapped_part(module: Module, wrapper: type) -> str | None:
    """What of `module` averages its gradients by a `wrapper` already, if anything does."""
    found = (
        name and f"its part '{name}'" for name, part in module.named_modules() if isinstance(part, wrapper)
    )
    part = next(found, None)
    return None if part is None else f"{part or 'the module'} is a {wrapper.__name__} already"


def warn_if_wrapped(module: Module, wrapper: type) -> None:
    """Warn whoever makes a `wrapper` of `module` that a part of it is one already."""
    if (wrapped := wrapped_part(module, wrapper)) is not None:
        warnings.warn(
            f"{wrapper.__name__}: {wrapped}; its gradients are averaged by the outer one alone: wrap a model once",
            stacklevel=3,
        )


def check_places(device_ids: Any, process_group: Any, device_mesh: Any) -> None:
    """Refuse several devices, and ranks that are named twice or in more than one dimension."""
    if device_ids is not None and len(device_ids) > 1:
        raise ValueError(f"device_ids can only be None or contain a single element, got {device_ids}")
    if process_group is not None and device_mesh is not None:
        raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
    if device_mesh is not None and device_mesh.ndim != 1:
        raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")


def with_sparse_gradients(module: Module, parameters: Iterable[Tensor]) -> list[int]:
    """The places, among `parameters`, of the tables of embeddings with `sparse=True`."""
    tables = {id(part.weight) for part in module.modules() if getattr(part, "sparse", None) is True}
    return [i for i, p in enumerate(parameters) if id(p) in tables]


def check_values(module: Module, mesh: DeviceMesh | None = None) -> None:
    """Refuse parameters without values, and those that are divided among the ranks; of others this rank's parts are taken.

    mesh: the ranks that average, one dimension of a mesh on whose others tensor parallelism may have divided parameters.
    """
    absent = [n for n, t in (*module.named_parameters(), *module.named_buffers()) if t.is_meta]
    if absent:
        raise RuntimeError(
            f"DistributedDataParallel: {', '.join(absent[:3])}{' …' if absent[3:] else ''} lie on meta and have no "
            "values that ranks could share. Give them some first: module.to_empty(device=...), then initialise or load "
            "them, or load_state_dict(..., assign=True)."
        )
    if any(hasattr(p, "full_tensor") for p in module.parameters()):
        from ..tensor.parallel.ddp import in_parts  # here, as few programs have DTensors

        if any(hasattr(p, "full_tensor") for p in in_parts(module, mesh).parameters()):
            raise RuntimeError(
                "DistributedDataParallel: the module's parameters are DTensors. fully_shard averages gradients itself: use the "
                "module as it is. What tensor parallelism has divided takes device_mesh=, another dimension of the same mesh."
            )


def check_members(module: Module, known: Container[int], ignored: Container[str]) -> None:
    """RuntimeError for a parameter that is trained, and not among those of `known` ids; `functional_call` puts in plain tensors."""
    for name, p in module.named_parameters():
        if id(p) not in known and p.requires_grad and isinstance(p, Parameter) and name not in ignored:
            raise RuntimeError(
                f"parameter '{name}' was not in the model when DistributedDataParallel took it over, so that its gradient would "
                "not be averaged over the ranks. Add and replace parts (load_state_dict(assign=True) replaces parameters) "
                "before the model is wrapped, or wrap model.module again."
            )


def check_frozen(frozen: Iterable[tuple[str, Tensor]]) -> None:
    """What had no gradient at construction has no place in a bucket: its gradient would stay local."""
    for name, p in frozen:
        if p.requires_grad:
            raise RuntimeError(
                f"parameter '{name}' was frozen when DistributedDataParallel took the model over, and requires a "
                "gradient now, which would not be averaged over the ranks. Wrap the model again after "
                "requires_grad_(True)."
            )


def verify(
    c: Communicator,
    tensors: Sequence[tuple[str, Tensor]],
    options: Mapping[str, Any],
    caller: str = "DistributedDataParallel",
) -> None:
    """Compare options, names, shapes, dtypes, orders in memory and what is trained between the ranks.

    `MismatchError` names the first difference; NotImplementedError for sparse tensors.
    """
    for n, t in tensors:
        if t.layout is not strided:
            raise NotImplementedError(
                f"{caller}: '{n}' is a sparse tensor, and parameters and buffers that the ranks share are "
                "dense: keep it as a plain attribute, or call to_dense()"
            )
    # Gradients lie in their bucket as the parameter does: another order would mix up elements.
    orders = [order_of_leaf(t._array) if t.requires_grad else None for _, t in tensors]
    described = [
        [n, list(t.shape), t.dtype.name, t.requires_grad, dims and list(dims)]
        for (n, t), dims in zip(tensors, orders, strict=True)
    ]
    mine = [dict(options), described]
    digest = hashlib.sha256(repr(mine).encode()).hexdigest()
    digests, libraries = zip(*c.all_gather_object((digest, mkl.chosen())), strict=True)
    if len(set(libraries)) > 1:
        _warn_of_libraries(libraries)
    if len(set(digests)) == 1:
        return
    lists = c.all_gather_object(mine)
    rank = next(r for r, d in enumerate(digests) if d != digests[0])
    (first, expected), (other, found) = lists[0], lists[rank]
    for name in first:
        if first[name] != other[name]:
            what = f"{name}={first[name]} on rank 0 and {name}={other[name]} on rank {rank}"
            error = MismatchError(f"{caller} has {what}: pass the same options on every rank")
            raise blaming(error, [rank])
    raise blaming(MismatchError(_first_difference(expected, found, rank)), [rank])


def _warn_of_libraries(versions: Sequence[str | None]) -> None:
    first, *others = (f"MKL {version}" if version else "NumPy's BLAS" for version in versions)
    rank, other = next((r, name) for r, name in enumerate(others, 1) if name != first)
    warnings.warn(
        f"rank 0 multiplies matrices with {first} and rank {rank} with {other}, so bits depend on the host that a rank is on: "
        "install the same mkl on all hosts, or set DDPGRAD_MKL=0",
        stacklevel=4,
    )


def _first_difference(reference: list[Any], other: list[Any], rank: int) -> str:
    advice = "Build the same model on every rank; ranks may differ in data, not in the model's structure."
    for a, b in zip(reference, other, strict=False):
        if a != b:
            if a[0] != b[0]:
                return f"the models differ: rank 0 has parameter '{a[0]}' where rank {rank} has '{b[0]}'. {advice}"
            if a[1:4] == b[1:4]:
                return (
                    f"the models differ in parameter '{a[0]}': its elements lie in memory in another order on rank {rank} than "
                    f"on rank 0 (strides, memory_format). {advice}"
                )
            if a[1:3] == b[1:3]:
                trains, rests = (0, rank) if a[3] else (rank, 0)
                return (
                    f"the models differ in parameter '{a[0]}': rank {trains} trains it, rank {rests} does not "
                    f"(requires_grad). {advice}"
                )
            return (
                f"the models differ in parameter '{a[0]}': rank 0 has shape {a[1]} of {a[2]}, rank {rank} has shape "
                f"{b[1]} of {b[2]}. {advice}"
            )
    longer, shorter, names = (0, rank, reference) if len(reference) > len(other) else (rank, 0, other)
    first = names[min(len(reference), len(other))][0]
    return f"the models differ: rank {longer} has parameter '{first}', which rank {shorter} does not have. {advice}"


class BuffersOf:
    """Whether modules of a model may have buffers: many models have none, and are not searched in each forward."""

    def __init__(self, model: Module) -> None:
        self._model, self._seen, self._some = model, -1, True

    def some(self) -> bool:
        """True if a module has one, or had."""
        if self._seen != registration.changes[0]:
            self._seen = registration.changes[0]
            self._some = any(module._buffers for module in self._model.modules())
        return self._some
