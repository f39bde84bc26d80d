"""`CommDebugMode`: which collectives a part of a program calls, by the modules whose forward or backward does.

Source of names: https://pytorch.org/docs/stable/distributed.tensor.html#debugging
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any, Self

from ....autograd import engine
from ....core import spans
from ....core.tensor import Tensor
from ....nn.modules.module import Module, register_module_forward_pre_hook
from ....utils._pytree import tree_iter
from ...collective_ops import CollectiveOp, op
from ..dtensor import DTensor

_OF_FUNCTIONS = {
    "all_gather": "allgather_", "all_gather_coalesced": "allgather_coalesced_", "all_gather_into_tensor": "_allgather_base_",
    "all_reduce": "allreduce_", "all_reduce_coalesced": "allreduce_coalesced_", "all_to_all": "alltoall_",
    "all_to_all_single": "alltoall_base_", "broadcast": "broadcast_", "gather": "gather_", "reduce": "reduce_",
    "reduce_scatter": "reduce_scatter_", "reduce_scatter_tensor": "_reduce_scatter_base_", "scatter": "scatter_",
}  # fmt: skip
"""Functions of `torch.distributed`, and what counts them."""

_EVERYTHING = "Global"


class _Collectives(spans.Recorder):
    """Hears of the collectives of one rank."""

    detailed = True

    def __init__(self, mode: CommDebugMode) -> None:
        super().__init__(spans.caller())
        self._mode = mode

    def add(self, span: spans.Span) -> None:
        if span.kind != "collective" or span.rank != self.rank:
            return
        told = (span.details or {}).get("op")
        if told is None and (name := _OF_FUNCTIONS.get(span.name.rpartition(":")[2])):
            told = f"c10d.{name}"
        if told is not None:
            self._mode.count(op(told))


class CommDebugMode:
    """A block in which the collectives of this rank are counted.

        with CommDebugMode() as mode:
            model(batch).sum().backward()
        mode.get_comm_counts()[torch.ops.c10d_functional.all_reduce]

    DTensors and tensor parallelism call those of `torch.ops.c10d_functional`; `fully_shard` and the functions of
    `torch.distributed` those of `torch.ops.c10d`. comm_module_counts: {module: {"forward": counts, "backward": counts}}, a
    module's with those of its parts; "Global" has all.
    """

    def __init__(self) -> None:
        self.comm_counts: dict[CollectiveOp, int] = defaultdict(int)
        self.comm_module_counts: dict[str, dict[str, dict[CollectiveOp, int]]] = {}
        self._names: dict[Module, str] = {}
        self._forward: list[str] = []
        self._backward = ""
        self._parameters: dict[str, dict[str, Tensor]] = {}
        self._sharding: dict[str, Any] = {}

    def __enter__(self) -> Self:
        for kept in (
            self.comm_counts,
            self.comm_module_counts,
            self._names,
            self._parameters,
            self._sharding,
        ):
            kept.clear()
        self._forward, self._backward = [], ""
        self.comm_module_counts[_EVERYTHING] = _no_counts()
        self._hooks = [register_module_forward_pre_hook(self._enter)]
        self._recorder = _Collectives(self)
        spans.attach(self._recorder)
        return self

    def __exit__(self, *error: object) -> None:
        spans.detach(self._recorder)
        for hook in self._hooks:
            hook.remove()
        self._names.clear()

    def get_total_counts(self) -> int:
        """How many collectives there were."""
        return sum(self.comm_counts.values())

    def get_comm_counts(self) -> dict[CollectiveOp, int]:
        """How many there were of each kind."""
        return self.comm_counts

    def get_parameter_info(self) -> dict[str, dict[str, Tensor]]:
        """By module that ran, its own parameters by name."""
        return self._parameters

    def get_sharding_info(self) -> dict[str, Any]:
        """By name, where those of the parameters lie that are DTensors."""
        return self._sharding

    def generate_comm_debug_tracing_table(self, noise_level: int = 3) -> str:
        """Collectives by module, in its forward and backward; above level 0 with where parameters lie."""
        lines: list[str] = []
        for name, found in self.comm_module_counts.items():
            depth = 0 if name == _EVERYTHING else 1 + name.count(".")
            lines.append("  " * depth + name)
            if noise_level > 0:
                for parameter in self._parameters.get(name, {}):
                    placements = self._sharding.get(f"{name}.{parameter}")
                    if placements is not None:
                        lines.append("  " * (depth + 1) + f"*{parameter}: {placements}")
            for when, counts in found.items():
                if counts:
                    lines.append("  " * (depth + 1) + f"{when.upper()} PASS")
                    lines += ["  " * (depth + 2) + f"*{kind}: {n}" for kind, n in counts.items()]
        return "\n".join(lines) + "\n"

    def log_comm_debug_tracing_table_to_file(
        self, file_name: str = "comm_mode_log.txt", noise_level: int = 3
    ) -> None:
        """Write the table to a file."""
        Path(file_name).write_text(self.generate_comm_debug_tracing_table(noise_level))

    def count(self, kind: CollectiveOp) -> None:
        """There was one of that kind."""
        self.comm_counts[kind] += 1
        when = "backward" if engine.running() else "forward"
        name = self._backward if engine.running() else (self._forward or [""])[-1]
        parents = [name[: dot.start()] for dot in re.finditer(r"\.", name)] + [name] * bool(name)
        for module in (_EVERYTHING, *parents):
            self.comm_module_counts.setdefault(module, _no_counts())[when][kind] += 1

    def _enter(self, module: Module, args: Any) -> None:
        """The hook before the forward of every module."""
        if module not in self._names:
            kind = type(module).__name__
            for path, part in module.named_modules():
                if part not in self._names:
                    self._names[part] = f"{kind}.{path}" if path else kind
                    self._hooks.append(
                        part.register_forward_hook(self._leave, always_call=True)
                    )  # the last of its hooks
        name = self._names[module]
        self._forward.append(name)
        self.comm_module_counts.setdefault(name, _no_counts())
        for key, p in module.named_parameters(recurse=False):
            self._parameters.setdefault(name, {})[key] = p.data
            if isinstance(p, DTensor):
                self._sharding[f"{name}.{key}"] = p.placements

    def _leave(self, module: Module, args: Any, result: Any) -> None:
        """The hook after it: from the gradient of its results on backward is that of the module."""
        name = self._forward.pop()
        for value in tree_iter(result):
            if isinstance(value, Tensor) and value.requires_grad:
                value.register_hook(lambda grad: self._comes_to(name))

    def _comes_to(self, name: str) -> None:
        self._backward = name

    def __repr__(self) -> str:
        return f"CommDebugMode(get_total_counts()={self.get_total_counts()})"


def _no_counts() -> dict[str, dict[CollectiveOp, int]]:
    return {"forward": defaultdict(int), "backward": defaultdict(int)}
