"""`onnx.export`: a model as an ONNX file, which other runtimes run.

The model is not translated module by module: it runs, and the ops that it runs are written down
(`trace.py`), so that models of any make are exported. Needs the package `onnx` (`pip install
'ddpgrad[onnx]'`). Source of the format: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...autograd import no_grad
from ...core.errors import ExportError
from ...core.modes import exporting
from ...core.tensor import Tensor, wrap
from ...nn.modules.module import Module
from ...random import fork_rng
from . import layers, losses, pointwise, recurrent, shapes
from .graph import Graph
from .trace import Size, Trace, Tracer, Value, unify

_OPSET = 18
_IR_VERSION = 9  # what runtimes since 2023 read

_FAMILIES = (layers, losses, pointwise, recurrent, shapes)
"""Importing them fills the table of converters."""


def export(
    model: Module,
    args: Any,
    f: str | os.PathLike[str] | Any,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    opset_version: int = _OPSET,
) -> None:
    """Write what `model` computes in evaluation mode as an ONNX model to a path or binary file.

    args: the example input, a tensor or a tuple of tensors. dynamic_axes: by the name of an input,
    the axes whose size may change, with their names in the file; other sizes are fixed. The model
    runs twice, the second time on other values and sizes, and ExportError says what cannot be
    written down: an op without a form in ONNX, a branch that depends on the input, a size that
    follows a dynamic axis other than by tensor operations. Constants keep the state_dict's names.
    """
    onnx = _package()
    if opset_version < _OPSET:
        raise ValueError(f"onnx.export: opset_version must be at least {_OPSET}, got {opset_version}")
    given = (args,) if isinstance(args, Tensor) else tuple(args)
    if not all(isinstance(arg, Tensor) and not arg.is_cuda for arg in given):
        raise TypeError("onnx.export: args must be a tensor on the CPU, or a tuple of such tensors")
    names = list(input_names or (f"input_{i}" if len(given) > 1 else "input" for i in range(len(given))))
    if len(names) != len(given):
        raise ValueError(f"onnx.export: {len(names)} input_names for {len(given)} inputs")
    axes = {name: _axes(name, of) for name, of in (dynamic_axes or {}).items()}
    inputs = [np.array(arg.detach().numpy(), order="C") for arg in given]
    others, sizes = _other_inputs(names, inputs, {n: a for n, a in axes.items() if n in names})
    training = {id(module): module.training for module in model.modules()}
    model.eval()
    exporting.set(True)
    try:
        first, second = (_run(model, names, arrays) for arrays in (inputs, others))
    finally:
        exporting.set(False)
        for module in model.modules():
            module.training = training[id(module)]
    trace = unify(first, second, sizes)
    graph = _convert(onnx, trace, opset_version)
    made = _assemble(onnx, graph, trace, model, dict(zip(names, inputs, strict=True)), output_names, axes)
    if isinstance(f, (str, os.PathLike)):
        with open(f, "wb") as file:
            file.write(made)
    else:
        f.write(made)


def _package() -> Any:
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise ExportError(
            f"onnx.export needs the package onnx ({error}); pip install 'ddpgrad[onnx]'"
        ) from error


def _axes(name: str, of: Mapping[int, str] | Sequence[int]) -> dict[int, str]:
    return dict(of) if isinstance(of, Mapping) else {axis: f"{name}_{axis}" for axis in of}


def _other_inputs(
    names: list[str], inputs: list[np.ndarray], axes: Mapping[str, Mapping[int, str]]
) -> tuple[list[np.ndarray], list[tuple[Size, int]]]:
    """Inputs of other values and, along dynamic axes, of other sizes: one more for each axis name than the last."""
    more = {
        label: i + 1 for i, label in enumerate(dict.fromkeys(n for of in axes.values() for n in of.values()))
    }
    others, sizes = [], []
    for name, array in zip(names, inputs, strict=True):
        other = array * np.array(0.75, array.dtype) if array.dtype.kind == "f" else np.flip(array)
        for axis, label in axes.get(name, {}).items():
            here = array.shape[axis]
            sizes.append((Size(name, axis, here), here + more[label]))
            other = np.take(other, np.arange(here + more[label]) % here, axis=axis)
        others.append(np.array(other, order="C"))
    return others, sizes


def _run(model: Module, names: list[str], inputs: list[np.ndarray]) -> Trace:
    state = [*model.named_parameters(), *model.named_buffers()]
    known = {name: tensor._array for name, tensor in state}
    if clash := set(names) & set(known):
        raise ValueError(f"onnx.export: input name {min(clash)!r} is a parameter's name as well")
    tracer = Tracer({**known, **dict(zip(names, inputs, strict=True))})
    tensors = [wrap(array) for array in inputs]

    def forward() -> list[Any]:
        return [t._array for t in _flat(model(*tensors))]

    with no_grad(), fork_rng():
        return tracer.run(forward)


def _flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        raise ExportError(f"onnx.export: the model returns a {type(value).__name__}; expected tensors")
    return [t for part in value if part is not None for t in _flat(part)]


def _convert(onnx: Any, trace: Trace, opset: int) -> Graph:
    graph = Graph(onnx, opset)
    needed = {value.name for value in trace.outputs if isinstance(value, Value)}
    used = []
    for step in reversed(trace.steps):
        # An op whose results nobody reads is left out, as is what only it reads.
        if any(result is not None and result.name in needed for result in step.results):
            used.append(step)
            needed |= {value.name for value in _values(step.arguments)}
    for step in reversed(used):
        graph.convert(step)
    return graph


def _values(argument: Any) -> list[Value]:
    if isinstance(argument, Value):
        return [argument]
    if isinstance(argument, dict):
        argument = list(argument.values())
    if isinstance(argument, (list, tuple)):
        return [value for part in argument for value in _values(part)]
    return []


def _assemble(
    onnx: Any,
    graph: Graph,
    trace: Trace,
    model: Module,
    inputs: Mapping[str, np.ndarray],
    output_names: Sequence[str] | None,
    axes: Mapping[str, Mapping[int, str]],
) -> bytes:
    """The serialized and checked model."""
    count = len(trace.outputs)
    names = list(output_names or (f"output_{i}" if count > 1 else "output" for i in range(count)))
    if len(names) != count:
        raise ValueError(f"onnx.export: {len(names)} output_names for {count} outputs")
    results = []
    for name, value in zip(names, trace.outputs, strict=True):
        graph.nodes.append(onnx.helper.make_node("Identity", [graph.of(value)], [name]))
        results.append(_typed(onnx, graph, name, value.shape, value.dtype, axes, fixed=False))
    state = {name: t.detach().numpy() for name, t in [*model.named_parameters(), *model.named_buffers()]}
    nodes = _without_unused(graph.nodes, set(names))
    read = {name for node in nodes for name in node.input}
    constants = {**graph.constants, **state}
    body = onnx.helper.make_graph(
        nodes,
        type(model).__name__,
        [
            _typed(onnx, graph, name, array.shape, array.dtype, axes, fixed=True)
            for name, array in inputs.items()
        ],
        results,
        [onnx.numpy_helper.from_array(np.array(a, order="C"), n) for n, a in constants.items() if n in read],
    )
    opset = onnx.helper.make_opsetid("", graph.opset)
    made = onnx.helper.make_model(
        body, producer_name="ddpgrad", opset_imports=[opset], ir_version=_IR_VERSION
    )
    onnx.checker.check_model(made)
    return made.SerializeToString()


def _without_unused(nodes: list[Any], wanted: set[str]) -> list[Any]:
    """The nodes that the outputs need: a converter may have replaced what an earlier one made."""
    kept = []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.append(node)
            wanted |= set(node.input)
    return kept[::-1]


def _typed(
    onnx: Any, graph: Graph, name: str, shape: Any, dtype: Any, axes: Mapping[str, Any], fixed: bool
) -> Any:
    """An input or output as the file declares it: dynamic axes by their names, or unsaid for outputs."""
    named = axes.get(name, {})
    free = bool(axes) and not fixed
    sizes = [named.get(axis, None if free else n) for axis, n in enumerate(shape)]
    return onnx.helper.make_tensor_value_info(name, graph.type_of(dtype), sizes)


def is_in_onnx_export() -> bool:
    """True in the forward of a model that `export` runs."""
    return exporting.get()


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Nothing: `export` writes the ops that run, and asks no rules of PyTorch's exporter."""


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Nothing: see `register_custom_op_symbolic`."""


__all__ = ["export", "is_in_onnx_export", "register_custom_op_symbolic", "unregister_custom_op_symbolic"]
