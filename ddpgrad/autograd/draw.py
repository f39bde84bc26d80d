"""`draw`: the graph behind a tensor as DOT text, rendered where Graphviz is installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..core.tensor import Tensor
from .accumulate import AccumulateGrad, edge_of
from .nodes import Node

Names = Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]


def draw(root: Tensor | Node, names: Names | None = None, file: str | Path | None = None) -> str:
    """The graph that backward would walk from `root`, as DOT text.

    names: leaves by name, such as `model.named_parameters()`. An operation is drawn with the
    shape and dtype of its result; a leaf as a box with its name. Arrows lead from what is
    computed to what it was computed from, and carry the number of the output where an
    operation has several. file: where to write it; `.dot` and `.gv` files hold the text, other
    suffixes (`.svg`, `.png`, `.pdf`) are rendered by Graphviz. `ValueError` when `root` has no
    graph, `RuntimeError` when a picture is wanted and Graphviz is not there.
    """
    start = edge_of(root)[0] if isinstance(root, Tensor) else root
    if start is None:
        raise ValueError("draw(): the tensor does not require grad and has no graph")
    known = {id(tensor): name for name, tensor in dict(names or ()).items()}
    numbers = {start: 0}
    order, lines, arrows = [start], [], []
    for node in order:  # grows while it is walked
        lines.append(_line(numbers[node], node, known))
        for target, nr in node.edges:
            if target is None:
                continue
            if target not in numbers:
                numbers[target] = len(order)
                order.append(target)
            label = f' [label="{nr}"]' if target.outputs > 1 else ""
            arrows.append(f"  n{numbers[node]} -> n{numbers[target]}{label};")
    text = "\n".join(["digraph autograd {", "  node [fontname=monospace];", *lines, *arrows, "}"]) + "\n"
    if file is not None:
        _write(text, Path(file))
    return text


def _write(text: str, path: Path) -> None:
    kind = path.suffix.removeprefix(".")
    if kind in ("dot", "gv"):
        path.write_text(text)
        return
    import shutil  # as subprocess: only who wants a picture pays for loading them
    import subprocess

    program = shutil.which("dot")
    if program is None:
        raise RuntimeError(
            f"draw(): Graphviz's program `dot` is not on the PATH, so {path.name} cannot be rendered. Install Graphviz, "
            "or write the text to a .dot file."
        )
    done = subprocess.run([program, f"-T{kind}", "-o", str(path)], input=text, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"draw(): `dot -T{kind}` failed: {done.stderr.strip()}")


def _line(number: int, node: Node, known: dict[int, str]) -> str:
    if isinstance(node, AccumulateGrad):
        name = known.get(id(node.variable), "leaf")
        return f'  n{number} [shape=box, style=filled, label="{_escaped(name)}\\n{_kind(node.shape, node.dtype)}"];'
    if node.outputs > 1:
        kinds = "\\n".join(
            f"{i}: {_kind(s, d)}" for i, (s, d) in enumerate(zip(node.shape, node.dtype, strict=True))
        )
    else:
        kinds = _kind(node.shape, node.dtype)
    return f'  n{number} [shape=ellipse, label="{_escaped(node.name())}\\n{kinds}"];'


def _kind(shape: Any, dtype: Any) -> str:
    return "not a tensor" if shape is None else f"{list(shape)} {dtype.name}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
