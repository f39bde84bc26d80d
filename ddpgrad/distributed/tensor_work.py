"""Collectives under way on Tensors: communicators carry arrays, whose results go back into the tensors."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numpy as np

from .. import ops  # noqa: F401 - gives the class Tensor its methods
from ..backend.device import THROUGH_HOST, capturing
from ..backend.registry import SparseArray, backend_for, to_device
from ..core import spans
from ..core.errors import CaptureError, StallError
from ..core.tensor import Tensor
from .communicator.communicator import ArrayWork, Communicator
from .process_group import OutsideError, ProcessGroup, get_rank, resolve, seconds
from .transports.base import Patience

if TYPE_CHECKING:
    from ..futures import Future

P = ParamSpec("P")
R = TypeVar("R")


class Work:
    """A collective under way on Tensors; `wait()` before using them."""

    def __init__(
        self, work: ArrayWork, finish: Callable[[], None], result: list[Tensor], source: Any = None
    ) -> None:
        self._work = work
        self._finish: Callable[[], None] | None = finish
        self._result = result
        self._source = source
        self._error: BaseException | None = None

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Return when the results are in the tensors; raises what went wrong.

        timeout: None, or 0, for the group's. StallError where it has passed; the work goes on.
        """
        limit = seconds(timeout)
        if limit and not arrives(self.is_completed, limit) and self._error is None:
            shapes = [list(t.shape) for t in self._result]
            raise StallError(
                f"Work.wait(): Timed out waiting {limit * 1e3:g}ms for what was begun with tensors of the shapes {shapes}. "
                "It is still under way; other ranks have not come to it, or have not sent."
            )
        try:
            self._work.wait()
        except BaseException as error:
            self._error = error
            raise
        self._settle()
        return True

    def synchronize(self) -> None:
        """`wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """True when the results are in the tensors, or something went wrong; does not wait."""
        if self._finish is not None and self._error is None:
            try:
                if self._work.poll():
                    self._settle()
            except Exception as error:
                self._error = error
        return self._finish is None or self._error is not None

    def is_success(self) -> bool:
        """True when complete and nothing went wrong."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """What went wrong, if anything did."""
        return self._error

    def result(self) -> list[Tensor]:
        """The tensors that have the results; waits."""
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """The rank that a message came from; waits."""
        self.wait()
        return self._source() if self._source is not None else -1

    _source_rank = source_rank

    def get_future(self) -> Future[list[Tensor]]:
        """The results as a future."""
        from ..futures import Future  # here, as few programs ask for one

        return Future(self.result, self.is_completed)

    def _settle(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()

    def and_then(self, told: Callable[[], None]) -> None:
        """Call `told` when the results are in the tensors."""
        finish = self._finish

        def both() -> None:
            if finish is not None:
                finish()
            told()

        self._finish = both


class Several(ArrayWork):
    """Works that are waited for together."""

    def __init__(self, works: Sequence[ArrayWork]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()

    def poll(self) -> bool:
        return all(work.poll() for work in self._works)


def arrives(poll: Callable[[], bool], limit: float) -> bool:
    """Whether `poll` says yes within `limit` seconds."""
    deadline, patience = time.monotonic() + limit, Patience()
    while not poll():
        if time.monotonic() >= deadline:
            return False
        patience.pause()
    return True


def collective(sent: str, outside: Any = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Marks a function that ranks call together, or to one another, with an argument `group`.

    A rank outside the group is warned, and gets `outside`. Profilers are told of the call, as "gloo:all_reduce", with
    the shapes of the argument `sent`; of none for "".
    """

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        code = cast(Any, function).__code__
        names = code.co_varnames[: code.co_argcount]

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                if sent and spans.detailed:
                    return _told(function, sent, names, args, kwargs)
                return function(*args, **kwargs)
            except OutsideError:
                name = cast(Any, function).__name__
                warnings.warn(
                    f"Running {name} on global rank {get_rank()} which does not belong to the given group.",
                    stacklevel=2,
                )
                return outside

        return called

    return mark


# By the name of a function: PyTorch's of what it does.
_TITLES = {"isend": "send", "irecv": "recv"}


def _told(function: Any, sent: str, names: tuple[str, ...], args: Any, kwargs: Any) -> Any:
    """Call `function`; profilers hear of it when the results are there."""
    given = dict(zip(names, args, strict=False)) | kwargs
    title = _TITLES.get(function.__name__, function.__name__)
    if title == "recv" and given.get("src") is None and given.get("group_src") is None:
        title = "recvAnySource"
    name = f"{resolve(given.get('group')).backend}:{title}"
    tensors = (
        given.get(sent) or () if isinstance(given.get(sent), (list, tuple, type(None))) else [given[sent]]
    )
    # Complex numbers travel as pairs, which PyTorch shows.
    shapes = [[*t.shape, 2] if t.is_complex() else [*t.shape] for t in tensors if isinstance(t, Tensor)]
    began = spans.now()
    work = function(*args, **kwargs)

    def tell() -> None:
        spans.tell_detail("collective", name, began, spans.COMMUNICATION, shapes=shapes)

    if isinstance(work, Work):
        work.and_then(tell)
    else:
        tell()
    return work


def on_host(tensor: Tensor) -> np.ndarray:
    """The tensor's array where transports can read it: itself on a CPU, else a copy."""
    backend = backend_for(tensor._array)
    if backend.kind == "cpu":
        return tensor._array
    if capturing.now is not None:
        raise CaptureError(f"this collective {THROUGH_HOST}")
    return backend.to_host(tensor._array)


def give_back(tensor: Tensor, host: np.ndarray) -> None:
    """Put the result of a collective, in `host`, into the tensor."""
    if host is not tensor._array:
        tensor._array[...] = to_device(host, tensor.device)
    written(tensor)


def written(tensor: Tensor) -> None:
    """Count a write that no op made. Collectives may write to what was made in inference mode, which counts nothing."""
    if type(tensor._versions) is list:
        tensor._versions[0] += 1


def host_of(name: str, tensor: Any, c: Communicator | None = None) -> np.ndarray:
    """The array that goes through `c` for `tensor`: itself, or a copy in host memory."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}(): expected a Tensor, got {type(tensor).__name__}")
    array = tensor._array
    if type(array) is np.ndarray or (c is not None and c.transport == "nccl"):
        return array
    if isinstance(array, SparseArray):
        raise NotImplementedError(
            f"{name}(): sparse tensors are not supported; all_reduce takes them, and to_dense() makes others of them"
        )
    return on_host(tensor)


def listed(name: str, parameter: str, tensors: Any) -> None:
    """TypeError for anything but a list of Tensors."""
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(t, Tensor) for t in tensors):
        what = (
            f"a {type(tensors).__name__}"
            if not isinstance(tensors, (list, tuple))
            else [type(t).__name__ for t in tensors]
        )
        raise TypeError(
            f"{name}(): Invalid function argument. Expected parameter `{parameter}` of type List[torch.Tensor], got {what}"
        )


def one_dtype(name: str, *tensors: Tensor, pairs: bool = False) -> None:
    """ValueError, before anything is sent, for tensors of several dtypes: one rank's alone would keep the others waiting.

    pairs: complex numbers may be among the real ones that they consist of.
    """
    kinds = {t._array.dtype for t in tensors}
    if pairs:
        kinds = {np.dtype(f"f{kind.itemsize // 2}") if kind.kind == "c" else kind for kind in kinds}
    if len(kinds) > 1:
        names = " and ".join(sorted({t.dtype.name for t in tensors}))
        raise ValueError(f"{name}(): Invalid usage of tensors with different dtypes. Found {names}")


def room_in(out: Tensor, sent: np.ndarray) -> np.ndarray | None:
    """The memory of `out`, if a result can be written there as it arrives: nothing of `sent`, or its dtype, stands against it."""
    array = out._array
    if type(array) is not np.ndarray or type(sent) is not np.ndarray or array.dtype != sent.dtype:
        return None
    return array if array.flags.carray and not np.may_share_memory(array, sent) else None


def store(name: str, out: Tensor, row: np.ndarray, there: bool = False) -> None:
    """Put `row` into `out`; there: it lies there already. ValueError where shapes or dtypes differ."""
    if there:
        written(out)
        return
    if out._array.shape != row.shape or out._array.dtype != row.dtype:
        raise ValueError(
            f"{name}(): an output has shape {list(out.shape)} and dtype {out.dtype.name}, but a rank sent shape "
            f"{list(row.shape)} of {row.dtype}"
        )
    out._array[...] = to_device(row, out.device)
    written(out)


def run(work: ArrayWork, finish: Callable[[], None], result: list[Tensor], async_op: bool) -> Work | None:
    """The work, or None once it is done."""
    if async_op:
        return Work(work, finish, result)
    work.wait()
    finish()
    return None


def root_of(group: ProcessGroup, name: str, of_world: int | None, of_group: int | None) -> int:
    """The root's rank within the group."""
    if of_group is not None:
        if of_world is not None:
            raise ValueError(f"{name}(): give the rank of the world or of the group, not both")
        return of_group
    wanted = 0 if of_world is None else of_world
    return group.ranks.index(wanted) if wanted in group.ranks else group.place(wanted, f"{name}(): rank")


def sum_sparse(tensor: Tensor, op: Any, c: Communicator, async_op: bool, label: str) -> Work | None:
    """`all_reduce` of a sparse tensor, which becomes the coalesced sum of those of all ranks.

    With `async_op` all ranks wait for such works in one order. RuntimeError for another `op` than a sum.
    """
    from .communicator.sparse import SparseSum  # here, as few programs have sparse tensors

    if op != "sum":
        raise RuntimeError(
            "unsupported reduction operation (allreduce of sparse tensors only works with ReduceOp.SUM)"
        )
    work = SparseSum(c, tensor._array, tensor._array, label)

    def finish() -> None:
        tensor._array[...] = work.result()
        written(tensor)

    return run(work, finish, [tensor], async_op)  # type: ignore[arg-type]
