"""`DTensor`: a tensor of which every rank of a mesh has a part, or all."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Self

from ... import ops  # noqa: F401 - gives the class Tensor its methods
from ...autograd.grad_mode import is_grad_enabled, no_grad
from ...backend.registry import to_device
from ...core.overrides import disabled
from ...core.size import Size
from ...core.tensor import Tensor, wrap
from ...nn.parameter import Parameter
from ...ops.creation.draws import METHODS as DRAWS
from ...ops.creation.factories import empty
from ..device_mesh import DeviceMesh
from ..tensor_work import on_host
from .arithmetic import methods
from .history import part_of, whole_of
from .layout import Layout, Placement, Replicate, Shard
from .parts import WHY_NOT, placed, plain


class DTensor(Tensor):
    """A tensor of the shape of the whole; this rank's part is `to_local()`, all of it `full_tensor()`.

    It can be saved by a Checkpointer, loaded, filled with random numbers (those that one rank alone would draw), changed
    in place by what treats every element by itself, clipped, and updated by the optimizers that do so too
    (SGD, Adam, AdamW, RMSprop ...). Operators, and methods that `arithmetic.py` lists, compute without history. Any other
    operation is an error, but for tensors that every rank has whole: these compute as ordinary tensors do.
    Made by `distribute_tensor`, `DTensor.from_local`, `fully_shard` and functions of this package such as `zeros`.
    """

    __slots__ = ()
    __torch_function__ = staticmethod(disabled)
    _layout: Layout

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("a DTensor is made by distribute_tensor() or DTensor.from_local()")

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh,
        placements: Sequence[Placement] = (Shard(0),),
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        **options: Any,
    ) -> DTensor:
        """The tensor of which each rank has its `local_tensor`, without history.

        shape: of the whole; by default found out, together. run_check: what all ranks are to have alike is the first
        one's, which overwrites that of the others.
        """
        if local_tensor.requires_grad and is_grad_enabled():
            warnings.warn(
                "DTensor.from_local(): what is computed of a DTensor has no history, so that no gradient comes back to "
                "local_tensor, which requires one; pass local_tensor.detach() if that is meant",
                stacklevel=2,
            )
        if shape is None:
            shape = list(local_tensor.shape)
            for dim, placement in enumerate(placements):
                if isinstance(placement, Shard):
                    sizes = device_mesh.get_group(dim).communicator.all_gather_object(shape[placement.dim])
                    shape[placement.dim] = sum(sizes)
        layout = Layout(device_mesh, placements, shape)
        own, span = local_tensor.shape[layout.axis] if layout.is_shard else 0, layout.span
        if not layout.is_shard and tuple(local_tensor.shape) != layout.shape:
            raise ValueError(
                f"DTensor.from_local(): a tensor of shape {list(local_tensor.shape)} is not one of {list(shape)}"
            )
        if layout.is_shard and own != len(span):
            raise ValueError(
                f"DTensor.from_local(): {list(layout.placements)} gives rank {layout.communicator.rank} the "
                f"{'columns' if layout.axis else 'rows'} {span.start} to {span.stop - 1} of shape {list(shape)}, and it has {own}"
            )
        if run_check and not local_tensor.is_meta:
            for dim, placement in enumerate(layout.placements):
                if isinstance(placement, Replicate):
                    host = on_host(local_tensor).copy()
                    device_mesh.get_group(dim).communicator.broadcast(host, 0, "DTensor.from_local")
                    local_tensor.detach()[...] = wrap(to_device(host, local_tensor.device))
        return dtensor(local_tensor._array, layout)

    # -- what is said of the whole -----------------------------------------------------------

    @property
    def device_mesh(self) -> DeviceMesh:
        """The ranks that have it."""
        return self._layout.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """How it lies on them."""
        return self._layout.placements

    @property
    def shape(self) -> Size:
        return Size(self._layout.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """The number of elements of the whole."""
        return self.shape.numel()

    nelement = numel

    def stride(self, dim: int | None = None) -> Any:
        return empty(self.shape, dtype=self.dtype, device="meta").stride(dim)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return (
            f"DTensor(local_tensor={self.part()}, device_mesh={self.device_mesh}, "
            f"placements={self.placements})"
        )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise NotImplementedError(
            f"a DTensor of shape {list(self.shape)} is not saved or copied as an object, since this rank has a part of it: "
            "save full_tensor(), which all ranks call, or let a Checkpointer save the model"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return memo.setdefault(id(self), self._with(self.part().clone()._array, type(self)))

    # -- parts and the whole -----------------------------------------------------------------

    def part(self) -> Tensor:
        """This rank's part, without history; memory is shared."""
        local = wrap(plain(self._array))
        local._versions = self._versions
        return local

    def to_local(self, *, grad_placements: Any = None) -> Tensor:
        """This rank's part; memory is shared. The gradient of a part is that of the DTensor there."""
        if self._requires_grad and is_grad_enabled() and not self._layout.op:
            return part_of(self)
        return self.part()

    def full_tensor(self, *, grad_placements: Any = None) -> Tensor:
        """All of it, as an ordinary tensor of its own, on every rank and on the device of its part. Collective.

        Of its gradient, which is taken to be the same on all ranks, each rank keeps its part.
        """
        if self._requires_grad and is_grad_enabled() and not self._layout.op:
            return whole_of(self)
        return self.whole()

    def whole(self) -> Tensor:
        """As `full_tensor`, without history."""
        return wrap(self._layout.whole(self.part()._array, f"full_tensor of shape {list(self.shape)}"))

    def redistribute(
        self, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] = (), **options: Any
    ) -> DTensor:
        """The same tensor placed otherwise on its mesh. Collective."""
        layout = Layout(device_mesh or self.device_mesh, placements or self.placements, self.shape)
        if layout.op is not None:
            raise NotImplementedError(
                "redistribute: a tensor is not made Partial: DTensor.from_local() makes one of the ranks' parts"
            )
        return dtensor(self.whole()._array[layout.index].copy(), layout)

    @property
    def is_by_rows(self) -> bool:
        """Whether no other dimension than the first is divided."""
        return self._layout.axis == 0

    def by_rows(self) -> DTensor:
        """This tensor, or where another dimension is divided the same placed by rows, which is collective."""
        if self.is_by_rows:
            return self
        return self.redistribute(placements=[Shard(0) if p.is_shard() else p for p in self.placements])

    @property
    def local_rows(self) -> range:
        """The rows that this rank has, where no other dimension is divided."""
        return self._layout.span

    @property
    def is_first_replica(self) -> bool:
        """Whether this rank is the first of those that have the same rows: one of them is enough to save them."""
        return self._layout.is_first

    def replicated(self, tensor: Tensor) -> DTensor:
        """`tensor`, which all ranks have alike, on this one's mesh."""
        mesh = self.device_mesh
        return dtensor(tensor._array, Layout(mesh, [Replicate()] * mesh.ndim, tuple(tensor.shape)))

    def part_of(self, tensor: Tensor) -> DTensor:
        """`tensor`, which is the whole or lies likewise, placed as this one. Memory is shared."""
        return self._with(self._taken(tensor))

    def _filled_like(
        self, make: Any, args: Any, kwargs: Any, dtype: Any, device: Any, trained: bool
    ) -> DTensor:
        """What `make`, such as `zeros_like`, makes of each rank's part."""
        part = make(self.part(), *args, dtype=dtype, device=device, **kwargs)
        return self._with(part._array).requires_grad_(trained)

    def _with(self, array: Any, cls: type | None = None) -> Any:
        """A tensor that lies as this one, with another part."""
        out = dtensor(array, self._layout, cls or DTensor)
        if cls is not None:
            out._requires_grad = self._requires_grad
        return out

    def _taken(self, value: Tensor) -> Any:
        """This rank's part of `value`, which is laid out as this tensor or is the whole."""
        if isinstance(value, DTensor):
            if not self._layout.fits(value._layout):
                raise ValueError(
                    f"a DTensor of shape {list(value.shape)}, {value.placements} does not lie as one of shape "
                    f"{list(self.shape)}, {self.placements}: redistribute() it, or take its full_tensor()"
                )
            return value.part()._array
        if tuple(value.shape) != self._layout.shape:
            raise ValueError(
                f"a DTensor of shape {list(self.shape)} cannot take a tensor of shape {list(value.shape)}"
            )
        return value._array[self._layout.index]

    # -- what is done to each part -----------------------------------------------------------

    @property
    def data(self) -> Tensor:
        """The same memory without history."""
        return self._with(self._array)

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
        out = self._with(self._array)
        out._versions = self._versions
        return out

    def clone(self, *args: Any, **options: Any) -> Tensor:
        """A copy, without history."""
        return self._with(self.part().clone()._array)

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """The same in another dtype; without history."""
        return self._with(self.part().to(*args, **kwargs)._array)

    def cpu(self, *args: Any, **options: Any) -> Tensor:
        return self.to("cpu", *args, **options)

    def cuda(self, device: Any = None, *args: Any, **options: Any) -> Tensor:
        return self.to("cuda" if device is None else device, *args, **options)

    def contiguous(self, *args: Any, **options: Any) -> Tensor:
        return self._with(self.part().contiguous(*args, **options)._array)

    def numpy(self, *, force: bool = False) -> NoReturn:
        raise NotImplementedError(f"numpy: {WHY_NOT}")

    def __getitem__(self, index: Any) -> NoReturn:
        raise NotImplementedError(f"reading by index: {WHY_NOT}")

    def __setitem__(self, index: Any, value: Any) -> None:
        if index is not Ellipsis:
            raise NotImplementedError(f"writing by index: {WHY_NOT}")
        self.copy_(value) if isinstance(value, Tensor) else self.part().fill_(value)

    def item(self) -> Any:
        return self.whole().item()

    def copy_(self, src: Any, non_blocking: bool = False) -> Tensor:
        """Overwrite with `src`, which lies likewise or is the whole, on all ranks alike."""
        self.part().copy_(wrap(self._taken(src)))
        return self

    @staticmethod
    def _as_parameter(data: DTensor, requires_grad: bool) -> ShardedParameter:
        """What `Parameter(data)` is."""
        parameter = data._with(data._array, ShardedParameter)
        parameter._versions = data._versions
        parameter._requires_grad = requires_grad
        return parameter


class ShardedParameter(DTensor, Parameter):
    """A parameter of which this rank has a part."""

    __slots__ = ()


def dtensor(array: Any, layout: Layout, cls: type = DTensor) -> Any:
    """The DTensor that lies as `layout` says, of which this rank has `array`."""
    out = wrap(array, cls)
    if not (out.is_meta or (layout.is_replicated and cls is DTensor)):
        out._array = placed(array, layout)
    out._layout = layout
    return out


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """`tensor` placed on the ranks of `device_mesh`, by default replicated, with the values of its rank `src_data_rank`.

    src_data_rank: None: each rank takes its part of what it has itself. Collective otherwise.
    """
    layout = Layout(device_mesh, placements or [Replicate()] * device_mesh.ndim, tuple(tensor.shape))
    array = tensor._array
    if not tensor.is_meta:
        host = on_host(tensor).copy()
        if src_data_rank is not None:
            for group in device_mesh.get_all_groups():
                group.communicator.broadcast(host, src_data_rank, "distribute_tensor")
        array = to_device(host[layout.index].copy(), tensor.device)
    else:
        array = array[layout.index]
    cls = ShardedParameter if isinstance(tensor, Parameter) else DTensor
    out = dtensor(array, layout, cls)
    out._requires_grad = tensor._requires_grad
    if out._requires_grad and not out.is_meta:
        out._array = placed(out._array, layout)  # no gradient of it would be averaged
    return out


def _drawn(name: str) -> Callable[..., Any]:
    """As the method of Tensor draws for the whole, of which this rank keeps its part."""

    def method(self: DTensor, *args: Any, **kwargs: Any) -> DTensor:
        whole = empty(self.shape, dtype=self.dtype, device=self.device)
        with no_grad():
            getattr(whole, name)(*args, **kwargs)
            self.copy_(whole)
        return self

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"As `Tensor.{name}` of the whole."
    return method


def _elementwise(name: str) -> Callable[..., Any]:
    """As the method of Tensor does to each element by itself."""

    def method(self: DTensor, *args: Any, **kwargs: Any) -> DTensor:
        def part(value: Any) -> Any:
            return wrap(self._taken(value)) if isinstance(value, Tensor) and value.ndim else value

        given = {key: part(value) for key, value in kwargs.items()}
        with no_grad():
            getattr(self.part(), name)(*[part(value) for value in args], **given)
        return self

    method.__name__ = method.__qualname__ = name
    method.__doc__ = (
        f"As `Tensor.{name}`, without history; tensors among the arguments lie likewise, or are whole."
    )
    return method


for _name, _method in methods().items():
    setattr(DTensor, _name, _method)
DTensor.__hash__ = Tensor.__hash__
for _name in DRAWS:
    if _name.endswith("_"):
        setattr(DTensor, _name, _drawn(_name))
for _name in (
    "add_", "sub_", "mul_", "div_", "lerp_", "addcmul_", "addcdiv_", "clamp_", "clamp_min_", "clamp_max_", "fill_",
    "zero_", "neg_", "sqrt_", "nan_to_num_",
):  # fmt: skip
    setattr(DTensor, _name, _elementwise(_name))
