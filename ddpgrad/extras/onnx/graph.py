"""The ONNX graph under construction: nodes, constants, and the table of exported ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.errors import ExportError
from ...core.missing import nearest
from ...core.tables import decorator_for
from .trace import Counted, Filled, Size, Step, Unknown, Value

Converter = Callable[["Graph", Step], Any]
CONVERTERS: dict[str, Converter] = {}
"""What an op becomes, by its name: a function that adds nodes and returns the names of the results."""


converts = decorator_for(CONVERTERS)
"""Registers the converter of the ops of these names."""


class Graph:
    """Nodes in order, and constants by name."""

    def __init__(self, onnx: Any, opset: int) -> None:
        self.onnx = onnx
        self.opset = opset
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.producers: dict[str, Step] = {}
        self._count = 0
        self._known: dict[tuple[Any, ...], str] = {}

    def node(self, kind: str, inputs: Sequence[Any], outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; the name of its output, or the names of several. None among the attributes is left out.

        inputs: names, or arguments of a step that are arrays.
        """
        names = [self._name(kind) for _ in range(outputs)]
        given = {key: value for key, value in attributes.items() if value is not None}
        given_to = [value if isinstance(value, str) else self.of(value) for value in inputs]
        self.nodes.append(self.onnx.helper.make_node(kind, given_to, names, **given))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: Any = None) -> str:
        """The name of a constant; equal ones are one."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = name = self._name("const")
            self.constants[name] = array
        return self._known[key]

    def ints(self, values: Sequence[int]) -> str:
        return self.constant(list(values), np.int64)

    def of(self, value: Any, dtype: Any = None) -> str:
        """The name of an argument: a value, a constant array, or a number, which gets `dtype`."""
        if isinstance(value, Value):
            return value.name
        if isinstance(value, Filled):
            fill = self.onnx.numpy_helper.from_array(np.asarray([value.element], value.dtype))
            return self.node("ConstantOfShape", [self.shape(value.shape)], value=fill)
        if isinstance(value, Counted):
            count = self.cast(self.node("Squeeze", [self.number(value.length)]), value.dtype)
            start, step = (self.constant(n, value.dtype) for n in (value.start, value.step))
            end = self.node("Add", [start, self.node("Mul", [count, step])])
            return self.node("Range", [start, end, step])
        if isinstance(value, (Size, Unknown)):
            raise self.follows("a number")
        return self.constant(value, value.dtype if isinstance(value, np.ndarray) else dtype)

    def shape(self, sizes: Sequence[Any], *, one_free: bool = False) -> str:
        """The name of a shape of numbers and dynamic sizes. one_free: one unknown size may be worked out by Reshape."""
        parts = list(sizes)
        if one_free and (unknown := [i for i, n in enumerate(parts) if isinstance(n, Unknown)]):
            parts[unknown.pop()] = -1
        elif one_free and len(dynamic := [i for i, n in enumerate(parts) if isinstance(n, Size)]) == 1:
            parts[dynamic[0]] = -1
        if any(isinstance(n, Unknown) for n in parts):
            raise self.follows("a shape")
        if not any(isinstance(n, Size) for n in parts):
            return self.ints(parts)
        names = [self._size(n) if isinstance(n, Size) else self.ints([n]) for n in parts]
        return self.node("Concat", names, axis=0)

    def number(self, value: Any) -> str:
        """The name of a one-element list of an int or a dynamic size."""
        return self.shape([value])

    def _size(self, size: Size) -> str:
        whole = self.node("Shape", [size.input])
        one = self.node("Gather", [whole, self.ints([size.axis])], axis=0)
        return one if size.factor == 1 else self.node("Mul", [one, self.ints([size.factor])])

    def follows(self, what: str) -> ExportError:
        """The error for something that a converter cannot make dynamic."""
        return ExportError(
            f"onnx.export: {what} follows a dynamic axis in a way that the file cannot express; export without that dynamic axis"
        )

    def type_of(self, dtype: Any) -> int:
        """ONNX's number of a NumPy dtype."""
        return self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def cast(self, name: str, dtype: Any) -> str:
        return self.node("Cast", [name], to=self.type_of(dtype))

    def convert(self, step: Step) -> None:
        """Add the nodes of a step, whose first results get the names that later steps know them by."""
        converter = CONVERTERS.get(step.op)
        if converter is None:
            raise ExportError(
                f"onnx.export: the op '{step.op}' has no form in ONNX here{nearest(step.op, CONVERTERS)}"
            )
        out = converter(self, step)
        names = [out] if isinstance(out, str) else list(out)
        for result, name in zip(step.results, names, strict=False):
            if result is not None:
                self.producers[result.name] = step
                self.nodes.append(self.onnx.helper.make_node("Identity", [name], [result.name]))

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}.{self._count}"
