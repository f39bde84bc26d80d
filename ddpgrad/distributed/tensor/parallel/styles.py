"""How the parameters of a module are divided, and how its inputs and outputs lie.

Source of names: https://pytorch.org/docs/stable/distributed.tensor.parallel.html
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from ....core.tensor import Tensor
from ....nn import Embedding, Linear
from ....nn.modules.module import Module
from ....nn.parameter import Parameter
from ...device_mesh import DeviceMesh
from ..dtensor import DTensor
from ..factories import distribute_module, distribute_tensor
from ..layout import AnyShard, Placement, Replicate, Shard


class ParallelStyle(ABC):
    """What `parallelize_module` does to a module.

    src_data_rank: the rank whose values parameters take; None: each rank's own.
    """

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Divide the parameters of `module`, and bring its inputs and outputs to where they are to lie."""


def annotated(value: Any, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    """`value` as a DTensor; an ordinary tensor is this rank's part, and parts are equal."""
    if isinstance(value, DTensor):
        return value
    if not isinstance(value, Tensor):
        raise ValueError(f"expecting a torch.Tensor or DTensor, but got {type(value).__name__}")
    shape = list(value.shape)
    for d, p in enumerate(placements):
        if isinstance(p, AnyShard):
            shape[p.dim] *= mesh.size(d)
    return DTensor.joined(value, mesh, placements, shape)


def brought(value: DTensor, placements: Sequence[Placement]) -> DTensor:
    """`value` placed so."""
    wanted = value._layout.placed(placements).placements
    return value if value.placements == wanted else value.redistribute(placements=wanted)


class _Divided(ParallelStyle):
    """A `Linear` or an `Embedding`, of which each rank has a part.

    desired_input_layouts: how the module needs its input, by its class.
    """

    places: ClassVar[dict[type[Module], dict[str, Placement]]]  # of parameters, by name
    needs: ClassVar[dict[type[Module], Placement]]
    usual: ClassVar[tuple[Placement, Placement]]  # of inputs and outputs

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layouts = (input_layouts or self.usual[0],)
        self.output_layouts = (output_layouts or self.usual[1],)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        self.desired_input_layouts = (self.needs[self._kind(module)],)
        return distribute_module(module, device_mesh, self._partition, self._enter, self._leave)

    def _kind(self, module: Module) -> type[Module]:
        """Which of the classes that can be divided `module` is of."""
        for kind in self.places:
            if isinstance(module, kind):
                return kind
        raise NotImplementedError(
            f"{type(self).__name__} currently only support nn.Linear and nn.Embedding! Got {type(module).__name__}"
        )

    def _partition(self, name: str, module: Module, mesh: DeviceMesh) -> None:
        kind = self._kind(module)
        for key, p in list(module.named_parameters(recurse=False)):
            placed = distribute_tensor(p, mesh, [self.places[kind][key]], src_data_rank=self.src_data_rank)
            module.register_parameter(key, Parameter(placed, p.requires_grad))

    def _enter(self, module: Module, inputs: Any, mesh: DeviceMesh) -> Any:
        needs = self.needs[self._kind(module)]
        return brought(annotated(inputs[0], mesh, self.input_layouts), (needs,))

    def _leave(self, module: Module, outputs: Any, mesh: DeviceMesh) -> Any:
        out = brought(outputs, self.output_layouts)
        return out.to_local() if self.use_local_output else out

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(input_layouts={self.input_layouts}, output_layouts={self.output_layouts}, "
            f"use_local_output={self.use_local_output})"
        )


class ColwiseParallel(_Divided):
    """A `Linear` of which each rank computes a part of the output, or an `Embedding` of which it has a part of every row.

    input_layouts: how the input lies, by default on all ranks. output_layouts: how the output is to lie, by default as it
    does, a part of the last dimension on each rank. use_local_output: the output is this rank's part, an ordinary tensor.
    """

    places: ClassVar = {Linear: {"weight": Shard(0), "bias": Shard(0)}, Embedding: {"weight": Shard(1)}}
    needs: ClassVar = {Linear: Replicate(), Embedding: Replicate()}
    usual: ClassVar = (Replicate(), Shard(-1))


class RowwiseParallel(_Divided):
    """A `Linear` of which each rank has the weights of a part of the input, or an `Embedding` of which it has some rows.

    The ranks' outputs are added up. input_layouts: how the input lies, by default a part of the last dimension on each rank.
    output_layouts: how the output is to lie, by default on all ranks. use_local_output: as in `ColwiseParallel`.
    """

    places: ClassVar = {Linear: {"weight": Shard(1), "bias": Replicate()}, Embedding: {"weight": Shard(0)}}
    needs: ClassVar = {Linear: Shard(-1), Embedding: Replicate()}
    usual: ClassVar = (Shard(-1), Replicate())


class SequenceParallel(ParallelStyle):
    """A module such as `LayerNorm`, `RMSNorm` or `Dropout`, whose parameters all ranks have, and a part of the sequence each.

    sequence_dim: the dimension of the input that is divided. use_local_output: the output is this rank's part, an ordinary
    tensor. Parameters are taken to be alike on all ranks.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        return distribute_module(module, device_mesh, self._partition, self._enter, self._leave)

    def _partition(self, name: str, module: Module, mesh: DeviceMesh) -> None:
        for key, p in list(module.named_parameters(recurse=False)):
            placed = DTensor.from_local(p.detach(), mesh, [Replicate()])
            module.register_parameter(key, Parameter(placed, p.requires_grad))

    def _enter(self, module: Module, inputs: Any, mesh: DeviceMesh) -> Any:
        return brought(annotated(inputs[0], mesh, self.sequence_sharding), self.sequence_sharding)

    def _leave(self, module: Module, outputs: Any, mesh: DeviceMesh) -> Any:
        return outputs.to_local() if self.use_local_output else outputs

    def __repr__(self) -> str:
        if len(self.sequence_sharding) == 1:
            return f"SequenceParallel(sequence_dim={self.sequence_sharding[0].dim}, use_local_output={self.use_local_output})"
        return f"SequenceParallel(sequence_sharding={self.sequence_sharding}, use_local_output={self.use_local_output})"
