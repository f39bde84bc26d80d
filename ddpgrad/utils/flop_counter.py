"""Counts floating-point operations of matrix products, convolutions and attention, in forward and backward."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ..autograd import engine
from ..backend.registry import Backend, backend_of, loaded
from ..core.rank_local import bound
from ..ops.dispatch.declare import OPS, Op
from ..ops.dispatch.multiply_adds import multiply_adds
from ..ops.dispatch.recording import replace_kernels
from .module_tracker import ModuleTracker

Arguments = tuple[Any, ...]
Shapes = list[tuple[int, ...]]


class FlopCounterMode:
    """Counts, within a `with` block, the operations of what runs in it, by module and by PyTorch's names of functions.

    A multiplication and an addition count as two; all else than products counts as none. Attention counts as its
    two products, four in backward, as PyTorch counts it on meta; on a CPU PyTorch has no count for its fused
    kernel. A product with a vector counts as none, as in PyTorch. Tensors on meta are counted without computing.

    depth: how deep the table goes. display: print it at the end. mods: not needed, as modules are found.
    """

    def __init__(self, mods: Any = None, depth: int | None = 2, display: bool = True) -> None:
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.mod_tracker = ModuleTracker()
        self._undo: list[Callable[[], None]] = []
        self._within = False  # a kernel that is counted may call others
        self._rank: object = None

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self._rank = bound()
        for kind in ("cpu", "meta"):
            backend_of(kind)  # which nothing may have used yet
        backends = loaded()
        # Ops have kernels of their own, and gradient rules ask the backend for theirs.
        self._undo = [replace_kernels(self._of_op, backends), *map(self._replace_names, backends)]
        self.mod_tracker.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.mod_tracker.__exit__(*exc)
        while self._undo:
            self._undo.pop()()
        if self.display:
            print(self.get_table(self.depth))

    def get_total_flops(self) -> int:
        """All operations."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """Name of a module, or "Global" for all -> function -> operations."""
        return {module: dict(counts) for module, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as text, of modules down to `depth`."""
        depth = self.depth if depth is None else depth
        deepest = math.inf if depth is None else depth
        total = self.get_total_flops()
        unit = max(0, min(len(_UNITS) - 1, (len(str(total)) - 2) // 3))

        def row(name: str, count: int) -> tuple[str, str, str]:
            number = f"{count / 1000**unit:.3f}{_UNITS[unit]}" if unit else str(count)
            return name, number, f"{count / total:.2%}" if total else "0%"

        def rows_of(module: str, indent: str) -> list[tuple[str, str, str]]:
            counts = self.flop_counts[module]
            head = row(indent + module, sum(counts.values()))
            return [head, *(row(f"{indent} - {name}", count) for name, count in counts.items())]

        shown = [m for m in sorted(self.flop_counts) if m != "Global" and m.count(".") < deepest]
        rows = [r for m in shown for r in rows_of(m, " " * m.count("."))]
        if all(sum(self.flop_counts[m].values()) < total for m in shown):
            rows = [*rows_of("Global", ""), *((f" {name}", *rest) for name, *rest in rows)]
        return _text(rows or [("Global", "0", "0%")])

    # -- kernels --------------------------------------------------------------------------------

    def _of_op(self, op: Op, kernel: Callable[..., Any]) -> Callable[..., Any]:
        return self._counted(op.name, kernel) if op.name in _COSTS else kernel

    def _replace_names(self, backend: Backend) -> Callable[[], None]:
        before = {name: getattr(backend, name) for name in _COSTS}
        for name, kernel in before.items():
            setattr(backend, name, self._counted(name, kernel))
        return lambda: vars(backend).update(before)

    def _counted(self, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if self._within or bound() is not self._rank:
                return kernel(*args, **kwargs)
            self._within = True
            try:
                out = kernel(*args, **kwargs)
            finally:
                self._within = False
            said, count = _COSTS[name](args, out if isinstance(out, tuple) else (out,))
            if said:
                for module in self.mod_tracker.parents:
                    self.flop_counts[module][said] += count
            return out

        return counted


# -- what a kernel costs ----------------------------------------------------------------------------
# Functions of its arguments and results: (PyTorch's name of the function, operations); no name for what is not counted.

Cost = Callable[[Arguments, Arguments], tuple[str, int]]


def _forward(name: str, results: Arguments, args: Arguments) -> int:
    return 2 * multiply_adds(OPS[name], args, results)


def _matmul(args: Arguments, results: Arguments) -> tuple[str, int]:
    dims = sorted((args[0].ndim, args[1].ndim))
    if args[1].ndim == 1 or dims[0] == 1 < dims[1] - 1:
        return "", 0
    return "aten.bmm" if dims[0] > 2 else "aten.mm", _forward("matmul", results, args)


def _weight_gradient(args: Arguments, results: Arguments) -> tuple[str, int]:
    return "aten.mm", 2 * args[0].size * args[1].shape[1]


def _linear(args: Arguments, results: Arguments) -> tuple[str, int]:
    if args[1].ndim == 1:
        return "", 0
    return "aten.mm" if args[2] is None else "aten.addmm", _forward("linear", results, args)


def _convolution(name: str) -> Cost:
    def cost(args: Arguments, results: Arguments) -> tuple[str, int]:
        return _convolution_name(), _forward(name, results, args)

    return cost


def _convolution_name() -> str:
    return "aten.convolution_backward" if engine.running() else "aten.convolution"


def _convolution_weight(args: Arguments, results: Arguments) -> tuple[str, int]:
    """As PyTorch counts it: also with groups, every channel meets every other."""
    g, input, kernel = args[0], args[1], args[2][2:]
    return _convolution_name(), 2 * g.size * input.shape[1] * math.prod(kernel)


def _attention(args: Arguments, results: Arguments) -> tuple[str, int]:
    return "aten.bmm", _forward("attention", results, args)


def _attention_backward(args: Arguments, results: Arguments) -> tuple[str, int]:
    return "aten.bmm", 2 * _forward("attention", results, args[1:5])


def _recurrent(name: str) -> Cost:
    return lambda args, results: ("aten.mm", _forward(name, results, args))


def _recurrent_backward(args: Arguments, results: Arguments) -> tuple[str, int]:
    """From the gradient of the gates, those of the weight and of all states but the first, which is rarely learned."""
    gates, (batch, width) = args[1], args[2].shape
    return "aten.mm", 2 * (2 * gates.size - batch * gates.shape[1]) * width


_COSTS: dict[str, Cost] = {
    "matmul": _matmul, "linear": _linear, "weight_gradient": _weight_gradient, "convolution": _convolution("convolution"),
    "convolution_input": _convolution("convolution_input"), "convolution_weight": _convolution_weight,
    "attention": _attention, "attention_backward": _attention_backward,
    **{f"{kind}_sequence": _recurrent(f"{kind}_sequence") for kind in ("lstm", "gru", "rnn")},
    **{f"{kind}_backward": _recurrent_backward for kind in ("lstm", "gru", "rnn")},
}  # fmt: skip

# -- text -----------------------------------------------------------------------------------------

_UNITS = ("", "K", "M", "B", "T")


def _text(rows: list[tuple[str, str, str]]) -> str:
    """Columns of text, the first one from the left."""
    head = ("Module", "FLOP", "% Total")
    widths = [max(len(title) + 2, *(len(row[i]) for row in rows)) for i, title in enumerate(head)]
    lines = [head, tuple("-" * width for width in widths), *rows]
    return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in lines)
