"""Communication hooks: they replace the averaging of a bucket, which they get as a `GradBucket`.

Source: https://pytorch.org/docs/stable/ddp_comm_hooks.html
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import StallError
from ...core.tensor import Tensor, wrap
from .. import collectives
from ..transports.base import limit

if TYPE_CHECKING:
    from ...futures import Future
    from ..process_group import ProcessGroup
    from .bucket import Bucket
    from .reducer import Reducer


class GradBucket:
    """The gradients of some parameters, one after the other in flat memory."""

    def __init__(
        self,
        index: int,
        last: bool,
        buffer: Tensor,
        gradients: Sequence[Tensor],
        parameters: Sequence[Tensor],
        label: str,
    ) -> None:
        self._index, self._last, self._buffer = index, last, buffer
        self._gradients, self._parameters = gradients, parameters
        self.label = label

    def index(self) -> int:
        """Its place in the order in which buckets are communicated."""
        return self._index

    def is_last(self) -> bool:
        """True for the last bucket of a backward."""
        return self._last

    def buffer(self) -> Tensor:
        """All gradients of the bucket as one flat tensor; between them may be padding, which is zero."""
        return self._buffer

    def set_buffer(self, tensor: Tensor) -> None:
        """Let `buffer` return another tensor of as many elements, and `gradients` its views, for a hook that is called next."""
        moved = tensor.storage_offset() - self._buffer.storage_offset()
        self._gradients = [
            tensor.as_strided(g.shape, g.stride(), g.storage_offset() + moved) for g in self._gradients
        ]
        self._buffer = tensor

    def gradients(self) -> list[Tensor]:
        """The gradients, as views of the bucket."""
        return list(self._gradients)

    def parameters(self) -> list[Tensor]:
        """The parameters, in the order of `gradients`."""
        return list(self._parameters)


def grad_bucket(reducer: Reducer, bucket: Bucket) -> GradBucket:
    """`bucket` as a hook sees it, among those that have hooks."""
    hooked = [other for other in reducer.buckets if not other.waits]
    parameters = [reducer.parameters[i] for i in bucket.layout.indices]
    last = hooked[-1] is bucket
    return GradBucket(hooked.index(bucket), last, wrap(bucket.flat), bucket.views, parameters, bucket.label)


Hook = Callable[[GradBucket], Any]


def bind(hook: Callable[[Any, GradBucket], Any], state: Any, reducer: Reducer) -> Hook:
    """`hook` with its state, after the checks of PyTorch's `register_comm_hook`, and of what it cannot do for `reducer`."""
    if reducer.hook is not None:
        raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
    if reducer.sparse:
        names = ", ".join(reducer.names[i] for i in sorted(reducer.sparse))
        raise NotImplementedError(
            f"register_comm_hook: hooks get flat buckets, and the gradients of {names} are sparse; make these modules "
            "with sparse=False"
        )
    if reducer.tunes:
        raise NotImplementedError(
            "register_comm_hook: bucket_cap_mb='auto' chooses by the times of plain averages; give a number, or None"
        )
    if reducer.skips_unused:
        raise NotImplementedError(
            "register_comm_hook: hooks are told which bucket is the last, and with skip_all_reduce_unused_params=True that is "
            "known when backward has ended only; leave one of them out"
        )
    if not callable(hook):
        raise reducer.logged(TypeError("Communication hook must be callable."))
    signature = inspect.signature(hook)
    if len(signature.parameters) < 2:
        raise reducer.logged(ValueError("Communication hook: expected two parameters, state and bucket."))
    annotation = list(signature.parameters.values())[1].annotation
    # Under `from __future__ import annotations` the annotation is a text.
    if annotation not in (inspect.Parameter.empty, GradBucket) and "GradBucket" not in str(annotation):
        raise reducer.logged(ValueError("Communication hook: bucket annotation should be dist.GradBucket."))
    return lambda bucket: hook(state, bucket)


def average(group: ProcessGroup | None, bucket: GradBucket, tensor: Tensor) -> Future[Any]:
    """A future of the average of `tensor`, made of `bucket`, over the group."""
    work = collectives.all_reduce(tensor, collectives.ReduceOp.AVG, group, async_op=True, label=bucket.label)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


class HookedWork:
    """The work of a hook on a bucket; when it is done, its result is in the bucket."""

    def __init__(self, future: Any, flat: Tensor) -> None:
        from ...futures import Future  # here, as most programs have no hook

        if not isinstance(future, Future):
            raise TypeError(
                f"a communication hook must return a torch.futures.Future of the bucket's new gradients, got "
                f"{type(future).__name__}; `work.get_future().then(...)` makes one"
            )
        self._future, self._flat = future, flat

    def poll(self) -> bool:
        """True when the result is there; does not wait."""
        return self._future.done()

    def wait(self) -> None:
        """Put the result into the bucket."""
        if not self._future.within(seconds := limit(None)):
            raise StallError(
                f"the future that a communication hook returned was not completed within {seconds:g} seconds: nobody has "
                "called its set_result(), or the collective in it waits (the limit is --timeout, or DDPGRAD_TIMEOUT)"
            )
        result = self._future.wait()
        if isinstance(result, (list, tuple)):
            (result,) = result
        if not isinstance(result, Tensor) or result.numel() != self._flat.numel():
            got = list(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise ValueError(
                f"a communication hook's future must have a tensor of the bucket's {self._flat.numel()} elements, got {got}"
            )
        if result._array is not self._flat._array:
            self._flat._array[...] = result.detach().to(self._flat.dtype)._array.reshape(-1)
