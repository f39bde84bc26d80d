"""`DTensor`: a tensor of which every rank of a mesh has a part, or all."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NoReturn, Self

from ... import ops  # noqa: F401 - gives the class Tensor its methods
from ...autograd import entry
from ...autograd.accumulate import accumulator, accumulators
from ...autograd.grad_mode import is_grad_enabled
from ...backend.registry import to_device
from ...core.classes import classes
from ...core.classes import plain as plain_forms
from ...core.modes import apart
from ...core.overrides import ASKED_FIRST, DisableTorchFunctionSubclass, asks, overriding
from ...core.tensor import Tensor, wrap
from ...nn.parameter import Parameter
from ..device_mesh import DeviceMesh, current_mesh
from ..tensor_work import on_host
from . import mesh_indexing, mesh_rules, mesh_view_rules, pickles  # noqa: F401  the first fill the tables
from .described import Described
from .history import AccumulateParts, joined_of, local_of
from .history import placed as moved
from .layout import AnyShard, Layout, Placement, Replicate, layout_of
from .mesh_array import MeshArray, without_partial
from .mesh_kernels import MADE, mesh_array
from .methods import attach
from .overriding import run
from .parts import WHY_NOT, placed, plain
from .rows import Rows
from .spec import DTensorSpec, spec_of


class DTensor(Described, Rows, Tensor):
    """A tensor of the shape of the whole; this rank's part is `to_local()`, all of it `full_tensor()`.

    Functions of DTensors compute on each rank's part where they can, and on all of it where not (`mesh_kernels.py`); their
    results are DTensors with a history. A DTensor of a program's own, a *leaf*, holds its part as a `ShardArray`: it can be
    saved by a Checkpointer, filled with random numbers (those that one rank alone would draw), clipped, and updated by
    optimizers that treat every element by itself (SGD, Adam, AdamW, RMSprop ...).
    Made by `distribute_tensor`, `DTensor.from_local`, `fully_shard` and functions of this package such as `zeros`.
    """

    __slots__ = ()
    _operand = ASKED_FIRST

    def __new__(cls, local_tensor: Tensor, spec: DTensorSpec, *, requires_grad: bool) -> Any:
        """The leaf that lies as `spec` says, of which this rank has `local_tensor`; memory is shared."""
        computing()
        layout = layout_of(spec.mesh, spec.placements, spec.shape)
        if tuple(local_tensor.shape) != layout.part_shape:
            raise ValueError(
                f"DTensor(): {list(layout.placements)} gives this rank a part of shape {list(layout.part_shape)} of "
                f"{list(layout.shape)}, and it has one of {list(local_tensor.shape)}"
            )
        out = dtensor(local_tensor._array, layout)
        out._versions, out._requires_grad = local_tensor._versions, requires_grad
        return out

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(DTensor, func, args, kwargs or {})

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        grad_placements: Sequence[Placement] | None = None,
        **options: Any,
    ) -> DTensor:
        """The tensor of which each rank has its `local_tensor`, by default all of it; its gradient is that of the part.

        grad_placements: how the gradient lies of which a rank's part is that of its `local_tensor`; by default as the tensor, and on
        all ranks where that is `Partial`. shape, stride: of the whole, both; by default found out, together. run_check: what all ranks are to have alike is the
        first one's, which overwrites that of the others; ValueError where parts differ in more than their elements.
        """
        if isinstance(local_tensor, DTensor):
            raise RuntimeError(
                f"the local_tensor argument only accepts torch.Tensor but got {type(local_tensor)} value."
            )
        mesh = device_mesh or current_mesh()
        if (shape is None) is not (stride is None):
            raise RuntimeError(
                f"Found shape:{shape}, stride:{stride}. Please pass both shape and stride at the same time."
            )
        return DTensor.joined(local_tensor, mesh, placements, shape, run_check, grad_placements)

    @staticmethod
    def joined(
        local_tensor: Tensor,
        mesh: DeviceMesh,
        placements: Sequence[Placement] | None,
        shape: Sequence[int] | None = None,
        run_check: bool = False,
        grad_placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        """As `from_local`."""
        placements = [Replicate()] * mesh.ndim if placements is None else placements
        if shape is None:
            shape = list(local_tensor.shape)
            for dim, placement in reversed(list(enumerate(placements))):
                if isinstance(placement, AnyShard):
                    if not -len(shape) <= placement.dim < len(shape):
                        raise RuntimeError(
                            f"Sharding dim {placement.dim} greater than tensor ndim {len(shape)} for placement number {dim}"
                        )
                    sizes = mesh.get_group(dim).communicator.all_gather_object(shape[placement.dim])
                    shape[placement.dim] = sum(sizes)
        computing()
        layout = layout_of(mesh, placements, shape)
        if tuple(local_tensor.shape) != layout.part_shape:
            raise ValueError(
                f"DTensor.from_local(): {list(layout.placements)} gives rank {layout.communicator.rank} a part of shape "
                f"{list(layout.part_shape)} of {list(shape)}, and it has one of {list(local_tensor.shape)}"
            )
        if run_check:
            _make_alike(local_tensor, layout)
        if local_tensor._requires_grad and is_grad_enabled():
            grads = None if grad_placements is None else layout.placed(grad_placements).placements
            return DTensor.shown(joined_of(local_tensor, layout, grads))
        return dtensor(local_tensor._array, layout)

    # -- the two forms ------------------------------------------------------------------------

    @property
    def _layout(self) -> Layout:
        array = self._array
        return array.layout if isinstance(array, MeshArray) else self._placed_as

    @_layout.setter
    def _layout(self, layout: Layout) -> None:
        self._placed_as = layout

    def entered(self) -> Tensor:
        """This tensor as functions compute with it: itself, or of a leaf a tensor whose gradient is the leaf's."""
        if isinstance(self._array, MeshArray):
            return self
        alias = wrap(mesh_array(plain(self._array), self._layout))
        alias._versions = self._versions
        if self._grad_fn is not None:
            alias._grad_fn, alias._output_nr, alias._requires_grad = self._grad_fn, self._output_nr, True
        elif self._requires_grad:
            alias._requires_grad = True
            alias._accumulator_kept = accumulator(self)
            alias._accumulator = self._accumulator
        return alias

    def compute(self) -> None:
        """Take the form of what functions have computed, before a history is recorded for it."""
        if not isinstance(self._array, MeshArray):
            self._array = mesh_array(plain(self._array), self._layout)

    def plain(self) -> Tensor:
        """`entered`, of the class Tensor."""
        tensor = self.entered()
        if tensor is self:
            tensor = wrap(self._array)
            tensor._versions, tensor._requires_grad = self._versions, self._requires_grad
            tensor._grad_fn, tensor._output_nr = self._grad_fn, self._output_nr
        return tensor

    @staticmethod
    def shown(tensor: Any) -> Any:
        """`tensor`, which a function has computed, as programs see it: without history as a leaf."""
        array = tensor._array
        if tensor.__class__ is Tensor and isinstance(array, MeshArray):
            tensor.__class__ = DTensor
            if not tensor._requires_grad:
                tensor._array, tensor._layout = placed(array.part, array.layout), array.layout
        return tensor

    def become(self, computed: Tensor) -> None:
        """Take over what a function in place made of `entered()`."""
        self._array, self._view = computed._array, computed._view
        self._grad_fn, self._output_nr = computed._grad_fn, computed._output_nr
        self._requires_grad, self._versions = computed._requires_grad, computed._versions

    def settled(self, placements: Sequence[Placement] | None = None) -> DTensor:
        """The same without history as a leaf holds it, placed so; memory is shared where nothing moves. Collective."""
        layout = self._layout if placements is None else self._layout.placed(placements)
        part = self._layout.moved(plain(self._array), layout.placements, "redistribute")
        out = dtensor(part, layout)
        out._versions = self._versions
        return out

    def gradient_of(self, part: Any) -> DTensor:
        """The gradient of this leaf whose part is `part`."""
        return dtensor(part, self._layout.placed(without_partial(self.placements)))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return (
            f"DTensor(local_tensor={self.part()}, device_mesh={self.device_mesh}, "
            f"placements={self.placements})"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        return pickles.taken_apart(self, isinstance(self, Parameter))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if self._grad_fn is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment"
            )
        if id(self) not in memo:
            out = memo[id(self)] = self._with(copy.deepcopy(self.part(), memo)._array, type(self))
            out.__dict__.update(
                copy.deepcopy({k: v for k, v in self.__dict__.items() if k != "_placed_as"}, memo)
            )
            if self._grad is not None:
                out._grad = copy.deepcopy(self._grad, memo)
        return memo[id(self)]

    # -- parts and the whole -----------------------------------------------------------------

    def part(self) -> Tensor:
        """This rank's part, without history; memory is shared."""
        local = wrap(plain(self._array))
        local._versions = self._versions
        return local

    @property
    def _local_tensor(self) -> Tensor:
        return self.part()

    @property
    def _spec(self) -> DTensorSpec:
        return spec_of(self)

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """This rank's part; memory is shared.

        Its gradient is a part of that of the DTensor, which lies as this or as `grad_placements` say; where this one is
        `Partial`, ranks are taken to have the same gradient.
        """
        if self._requires_grad and is_grad_enabled():
            with DisableTorchFunctionSubclass():
                return local_of(self.entered(), grad_placements)
        return self.part()

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """All of it, as an ordinary tensor of its own, on every rank and on the device of its part. Collective.

        Of its gradient, which is taken to be the same on all ranks unless `grad_placements` say otherwise, each rank keeps its part.
        """
        if self._requires_grad and is_grad_enabled():
            with DisableTorchFunctionSubclass():
                whole = moved(self.entered(), (Replicate(),) * self.device_mesh.ndim)
                return local_of(whole, grad_placements)
        return self.whole()

    def whole(self) -> Tensor:
        """As `full_tensor`, without history."""
        return wrap(self._layout.whole(self.part()._array, f"full_tensor of shape {list(self.shape)}"))

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: Any = None,
        backward_dtype: Any = None,
    ) -> DTensor:
        """The same tensor placed otherwise on its mesh; its gradient goes back to where this one is. Collective.

        forward_dtype: of the result. backward_dtype: in which the gradient travels, if not in its own.
        """
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise NotImplementedError("Cross device mesh comm not supported yet!")
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        layout = self._layout.placed(placements)
        for before, after in zip(self.placements, layout.placements, strict=True):
            if after.is_partial() and before != after:
                raise RuntimeError(
                    f"Can not redistribute from {before} to {after}, redistributing to Partial is for internal use only! "
                    "DTensor.from_local() makes one of the ranks' parts"
                )
        source: Any = self if forward_dtype is None else self.to(forward_dtype)
        if source._requires_grad and is_grad_enabled():
            with DisableTorchFunctionSubclass():
                given = source.entered()
                return DTensor.shown(moved(given, layout.placements, backward_dtype).view_as(given))
        return source.settled(layout.placements)

    def _with(self, array: Any, cls: type | None = None, layout: Layout | None = None) -> Any:
        """A tensor that lies as this one, or as `layout` says, with another part."""
        out = dtensor(plain(array), layout or self._layout, cls or DTensor)
        if cls is not None:
            out._requires_grad = self._requires_grad
        return out

    # -- what is done to each part -----------------------------------------------------------

    @property
    def data(self) -> Tensor:
        """The same memory without history."""
        return apart(self._versions, self._with(self._array))

    @data.setter
    def data(self, value: Tensor) -> None:
        part = self._taken(value)
        if not isinstance(value, DTensor):
            part = part.copy()
        made = self._with(part)
        Tensor.data.fset(self, made)  # type: ignore[attr-defined]

    @data.deleter
    def data(self) -> None:
        raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")

    def detach(self) -> Tensor:
        out = self._with(self._array) if asks(self) else wrap(self._array, DTensor)
        out._versions = self._versions
        return out

    def backward(
        self, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None
    ) -> None:
        run(DTensor, entry.backward, (self, gradient, retain_graph, create_graph), {"inputs": inputs})

    def numpy(self, *, force: bool = False) -> NoReturn:
        raise NotImplementedError(f"numpy: {WHY_NOT}")

    def item(self) -> Any:
        return self.whole().item()

    @staticmethod
    def _as_parameter(data: DTensor, requires_grad: bool) -> ShardedParameter:
        """What `Parameter(data)` is."""
        parameter = data._with(plain(data._array), ShardedParameter)
        parameter._versions = data._versions
        parameter._requires_grad = requires_grad
        return parameter


class ShardedParameter(DTensor, Parameter):
    """A parameter of which this rank has a part."""

    __slots__ = ()
    _operand = DTensor._operand
    __torch_function__: Any = DTensor.__torch_function__


def computing() -> None:
    """Let functions ask whether their arguments are DTensors, which those of programs that compute with none do not."""
    if DTensor not in overriding:
        overriding.append(DTensor)


MADE.append(lambda cls: (computing(), classes.update({cls: DTensor})))


def dtensor(array: Any, layout: Layout, cls: type = DTensor) -> Any:
    """The DTensor that lies as `layout` says, of which this rank has `array`."""
    out = wrap(array, cls)
    if not out.is_meta:
        out._array = placed(array, layout)
    out._layout = layout
    return out


attach(DTensor)
accumulators.update({DTensor: AccumulateParts, ShardedParameter: AccumulateParts})
plain_forms.update({DTensor: DTensor.plain, ShardedParameter: DTensor.plain})


def _make_alike(part: Tensor, layout: Layout) -> None:
    """Take the first rank's elements where all are to have the same; ValueError where parts differ in more than elements."""
    own = tuple(part.shape), part.stride(), part.dtype.name, part.requires_grad
    for group in layout.mesh.get_all_groups():
        if any(other != own for other in group.communicator.all_gather_object(own)):
            raise ValueError("Inconsistent tensor metadata (including shape and stride) across ranks.")
    for dim, placement in enumerate(layout.placements):
        if isinstance(placement, Replicate) and not part.is_meta:
            host = on_host(part).copy()
            layout.mesh.get_group(dim).communicator.broadcast(host, 0, "DTensor.from_local")
            part.detach()[...] = wrap(to_device(host, part.device))
