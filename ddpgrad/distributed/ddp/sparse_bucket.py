"""The bucket of a parameter whose gradients are sparse: it has no flat memory, and its average is gathered."""

from __future__ import annotations

from typing import Any

from ...backend.registry import SparseArray
from ...backend.sparse.kernels import empty
from ...core import spans
from ...core.errors import DistributedError
from ...core.tensor import Tensor, wrap
from ..communicator.communicator import Communicator
from ..communicator.sparse import SparseSum
from .bucket import Layout, Times


class SparseBucket(Times):
    """The sparse gradient of one parameter, which lies in its `.grad`, and the state of its reduction.

    As in PyTorch, gradients are divided by the number of ranks and then added up. Where a rank has none, and where it
    shadows the steps of the others, it adds nothing.
    """

    stage = None  # the stored values are read where they lie

    def __init__(self, layout: Layout, name: str, parameter: Tensor) -> None:
        self.layout, self.label, self._parameter = layout, name, parameter
        self.missing = 1
        self.work: SparseSum | None = None
        self._began = 0.0  # when its average was begun, while a profiler listens
        self._shadows = self._shadowed = False  # in the next reduction, and in the one under way

    @property
    def flat(self) -> Any:
        """The stored values of this rank's gradient, in one dimension."""
        grad = self._parameter._grad
        return self._empty().values.reshape(-1) if grad is None else self._checked(grad).values.reshape(-1)

    @property
    def views(self) -> list[Tensor]:
        """The stored values, of the one parameter that there is."""
        return [wrap(self.flat)]

    def _empty(self) -> Any:
        array = self._parameter._array
        return empty(array, array.shape, array.ndim - 1)

    def _checked(self, grad: Tensor) -> Any:
        if not isinstance(grad._array, SparseArray):
            raise DistributedError(
                f"parameter '{self.label}': expected a sparse gradient, as its module has sparse=True, but it got a dense "
                "one: the parameter is used elsewhere too. Make the module with sparse=False."
            )
        return grad._array

    def clear(self) -> None:
        """Add nothing in the next reduction, and leave the gradient as it is."""
        self._shadows = True

    def scale_by(self, factor: float, parts: int) -> None:
        """Multiply the average, which `finish` puts in place, by `factor`; there are no micro-batches."""
        grad = self._parameter._grad
        if grad is not None and not self._shadowed:
            grad._array.values[...] *= factor

    def start(self, c: Communicator) -> None:
        """Begin to average the gradient over the ranks."""
        self._shadowed, self._shadows = self._shadows, False
        grad = None if self._shadowed else self._parameter._grad
        local = None if grad is None else self._checked(grad) / c.size
        self._began = spans.now() if spans.detailed else 0.0
        self.work = SparseSum(c, local, self._empty(), self.label)

    def finish(self, backend: str) -> None:
        """Wait for the average, and make it the gradient of the parameter where some rank had one.

        backend: how profilers call whoever made it.
        """
        assert self.work is not None
        average, self.work = self.work.result(), None
        if self._began:
            shapes = [list(self._parameter.shape)]
            spans.tell_detail(
                "collective", f"{backend}:all_reduce", self._began, spans.COMMUNICATION, shapes=shapes
            )
            self._began = 0.0
        if average is not None and not self._shadowed:
            self._parameter._grad = wrap(average)
