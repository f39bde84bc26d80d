"""`summary`: layers, shapes, parameters, operations and memory of a model, as a table and as numbers.

Everything is measured in one forward of the model: shapes by hooks on its modules, multiply-adds by
watching the ops that run, activations by adding up the memory that the graph keeps for backward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import Tensor, enable_grad, zeros
from ..autograd.saved import saved_tensors_hooks
from ..backend import dtype as dtypes
from ..nn.modules.module import Module
from ..ops.dispatch.multiply_adds import multiply_adds
from ..ops.dispatch.recording import Call, Recorder
from ..random import fork_rng

_MIB = 1 << 20


@dataclass
class Layer:
    """One module of the model.

    name: its path, '' for the model itself. calls: how often it ran. output_shape: of its last
    output; a list for several tensors. parameters, multiply_adds: of it and what is in it.
    """

    name: str
    kind: str
    depth: int
    parameters: int
    trainable: int
    calls: int = 0
    output_shape: Any = None
    multiply_adds: int = 0


@dataclass
class Memory:
    """Bytes in training: parameters, gradients, optimizer state, and activations kept for backward."""

    parameters: int
    gradients: int
    optimizer_state: int
    activations: int

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer_state + self.activations


@dataclass
class Summary:
    """What `summary` found; printed, it is a table."""

    layers: list[Layer] = field(repr=False)
    parameters: int
    trainable: int
    multiply_adds: int
    memory: Memory

    def __str__(self) -> str:
        header = ("Layer", "Output shape", "Parameters", "Multiply-adds")
        ran = {layer.name for layer in self.layers if layer.calls}
        rows = [header, *(_row(layer, ran) for layer in self.layers)]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = [
            f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}"
            for row in rows
        ]
        rule = "-" * max(map(len, lines))
        parts = [
            ("parameters", self.memory.parameters),
            ("gradients", self.memory.gradients),
            ("optimizer state", self.memory.optimizer_state),
            ("activations", self.memory.activations),
            ("total", self.memory.total),
        ]
        return "\n".join(
            [
                lines[0],
                rule,
                *lines[1:],
                rule,
                f"{self.parameters:,} parameters, {self.trainable:,} of them trainable; "
                f"{self.multiply_adds:,} multiply-adds in a forward",
                "Memory in training, MiB: " + ", ".join(f"{name} {size / _MIB:.2f}" for name, size in parts),
            ]
        )

    __repr__ = __str__


def summary(
    model: Module,
    input_size: Sequence[Any] | None = None,
    input_data: Any = None,
    *,
    dtypes: Any = None,
    optimizer_states: int = 2,
) -> Summary:
    """What `model` is made of, and what one forward of it costs.

    input_size: the shape of the input, batch included, or a list of shapes for several inputs,
    which are zeros of `dtypes` (one, or one for each; the default type if None). input_data: the
    input itself, a tensor, or a list or tuple of arguments, or a dict of named ones, instead of a
    size. optimizer_states: values that the optimizer keeps for each trainable one: 2 for Adam, 1 for
    SGD with momentum, 0 for plain SGD.

    multiply_adds counts those of matrix products, convolutions and recurrent cells. A parameter that
    two modules share counts in both, and once in the totals. The model runs once, in the mode that
    it is in, on the CPU; its buffers and the random stream are then what they were before.
    """
    args, kwargs = _inputs(input_size, input_data, dtypes)
    layers = [_layer(name, module) for name, module in model.named_modules()]
    watch = _Watch(dict(zip(map(id, model.modules()), layers, strict=True)))
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    handles = [handle for module in model.modules() for handle in watch.attach(module)]
    fixed = [*model.parameters(), *model.buffers(), *_tensors((args, kwargs))]
    kept = _Kept(fixed)
    try:
        with fork_rng(), enable_grad(), Recorder(watch.count), saved_tensors_hooks(kept.keep, lambda t: t):
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
        for buffer, before in buffers:
            buffer.data.copy_(before)
    own = list(model.parameters())
    trained = [p for p in own if p.requires_grad]
    size = sum(p.nbytes for p in trained)
    return Summary(
        layers,
        sum(p.numel() for p in own),
        sum(p.numel() for p in trained),
        layers[0].multiply_adds,
        Memory(sum(p.nbytes for p in own), size, optimizer_states * size, kept.bytes()),
    )


def _inputs(input_size: Any, input_data: Any, types: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if (input_size is None) == (input_data is None):
        raise ValueError("summary() takes either input_size or input_data")
    if input_data is not None:
        if isinstance(input_data, dict):
            return (), input_data
        return tuple(input_data) if isinstance(input_data, (list, tuple)) else (input_data,), {}
    sizes = [input_size] if all(isinstance(n, int) for n in input_size) else list(input_size)
    chosen = list(types) if isinstance(types, (list, tuple)) else [types] * len(sizes)
    if len(chosen) != len(sizes):
        raise ValueError(f"summary(): {len(sizes)} inputs, but {len(chosen)} dtypes")
    default = dtypes.get_default_dtype()
    return tuple(zeros(tuple(n), dtype=t or default) for n, t in zip(sizes, chosen, strict=True)), {}


def _layer(name: str, module: Module) -> Layer:
    own = list(module.parameters())
    trained = sum(p.numel() for p in own if p.requires_grad)
    depth = name.count(".") + 1 if name else 0
    return Layer(name, type(module).__name__, depth, sum(p.numel() for p in own), trained)


def _row(layer: Layer, ran: set[str]) -> tuple[str, str, str, str]:
    label = f"{layer.name.rpartition('.')[2]}: {layer.kind}" if layer.name else layer.kind
    times = f" x{layer.calls}" if layer.calls > 1 else ""
    shape = str(layer.output_shape)
    if not layer.calls:  # a list of modules has no forward of its own
        shape = "-" if any(name.startswith(f"{layer.name}.") for name in ran) else "not run"
    return (
        "  " * layer.depth + label + times,
        shape,
        f"{layer.parameters:,}" if layer.parameters else "-",
        f"{layer.multiply_adds:,}" if layer.multiply_adds else "-",
    )


class _Watch:
    """Attributes what runs to the modules that are running."""

    def __init__(self, layers: dict[int, Layer]) -> None:
        self._layers = layers
        self._running: list[Layer] = []

    def attach(self, module: Module) -> Iterable[Any]:
        layer = self._layers[id(module)]

        def begin(module: Module, args: Any) -> None:
            self._running.append(layer)

        def end(module: Module, args: Any, output: Any) -> None:
            self._running.pop()
            layer.calls += 1
            shapes = [list(t.shape) for t in _tensors(output)]
            layer.output_shape = shapes[0] if len(shapes) == 1 else shapes

        return module.register_forward_pre_hook(begin), module.register_forward_hook(end)

    def count(self, call: Call) -> None:
        cost = multiply_adds(call.op, tuple(call.arguments.values()), call.results)
        if not cost:
            return
        # A module that runs within itself is charged once.
        for layer in {id(layer): layer for layer in self._running}.values():
            layer.multiply_adds += cost


class _Kept:
    """The memory that the graph keeps for backward: every piece once, without what is there anyway."""

    def __init__(self, fixed: Iterable[Tensor]) -> None:
        self._fixed = {t.untyped_storage().data_ptr() for t in fixed}
        self._alive: list[Any] = []  # addresses are only unique while their owners live
        self._sizes: dict[int, int] = {}

    def keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._fixed:
            self._alive.append(storage)
            self._sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    def bytes(self) -> int:
        return sum(self._sizes.values())


def _tensors(value: Any) -> list[Tensor]:
    """The tensors in nested containers."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [t for part in value for t in _tensors(part)]
