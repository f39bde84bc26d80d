"""Buckets: which gradients are reduced together, their places in flat memory, and how its average is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...backend.layout import shaped_like_leaf
from ...backend.registry import backend_for
from ...core import spans
from ...core.tensor import Tensor, wrap
from ..communicator.communicator import ArrayWork, Communicator
from .averages import lent, move_out

if TYPE_CHECKING:
    from .comm_hooks import GradBucket, Hook, HookedWork
    from .recompute import RecomputedSums

MIB = 1 << 20
FIRST_BYTES = 1 * MIB
"""Cap of the first bucket: small, so that communication begins early in backward."""

_USUAL_BYTES = 25 * MIB
# The last bucket has no backward left to hide behind: its share of all gradients bounds what is exposed.
_AT_LEAST = 32
_TAPER = 4

# Gradients start at multiples of this many bytes, so that vector loads of each are aligned.
_ALIGN = 64


def usual_cap(total_bytes: int) -> int:
    """The cap where the user gives none: 25 MiB, or less for 32 buckets of a MiB or more."""
    return min(_USUAL_BYTES, max(FIRST_BYTES, total_bytes // _AT_LEAST))


def refuse_caps(cap_mb: float | str | None, cap_mb_list: Sequence[float] | None) -> None:
    """Raise for caps that no bucket can have."""
    if isinstance(cap_mb, str) and (cap_mb != "auto" or cap_mb_list):
        other = " together with bucket_cap_mb_list" if cap_mb_list else ""
        raise ValueError(
            f"DistributedDataParallel: bucket_cap_mb must be a number of MiB, None or 'auto', got {cap_mb!r}{other}"
        )
    for name, caps in (("", [cap_mb]), ("_list", cap_mb_list or ())):
        if any(not isinstance(cap, str) and cap is not None and cap <= 0 for cap in caps):
            raise ValueError(
                f"DistributedDataParallel: bucket_cap_mb{name} must be positive, got {', '.join(map(str, caps))}"
            )


def cap_of(cap_mb: float | str | None, parameters: Sequence[tuple[str, Tensor]]) -> int:
    """The bytes of a bucket; `usual_cap` for None, and to begin with for "auto"."""
    for name, p in parameters if cap_mb == "auto" else ():
        if p.device.type != "cpu":
            raise NotImplementedError(
                f"DistributedDataParallel: bucket_cap_mb='auto' is for CPUs, and '{name}' lies on {p.device}, where the program "
                "does not know when gradients are computed: give a number of MiB, or None"
            )
    if cap_mb is None or isinstance(cap_mb, str):
        return usual_cap(sum(p.nbytes for _, p in parameters))
    return int(cap_mb * MIB)


@dataclass(frozen=True)
class Gradient:
    """The gradient of one parameter, as `plan` sees it. key: its dtype and device."""

    name: str
    size: int
    itemsize: int
    key: Any


@dataclass(frozen=True)
class Layout:
    """One bucket: parameters by index, the offset of each in elements, and the bucket's length."""

    indices: tuple[int, ...]
    offsets: tuple[int, ...]
    length: int
    key: Any


def plan(
    gradients: Sequence[Gradient],
    order: Sequence[int],
    cap_bytes: int,
    caps: Sequence[int] = (),
    first_bytes: int = FIRST_BYTES,
) -> list[Layout]:
    """Deal the gradients, in `order`, to buckets of one dtype and device each.

    A bucket is closed when it has reached `cap_bytes` (the first of each dtype and device:
    `first_bytes`), or a quarter of what is left to deal, but not for less than `first_bytes`: so
    the last ones, which have little of backward to hide behind, are small. Buckets are in the order in which
    they were closed, as PyTorch's are. caps: instead of all that, the bytes of each bucket in turn; the last counts for the rest.
    """
    if len(set(order)) < len(order):
        raise ValueError(f"order must name a gradient once, got {list(order)}")
    open_: dict[Any, list[int]] = {}
    bytes_: dict[Any, int] = {}
    closed: dict[Any, int] = {}
    rest: dict[Any, int] = {}
    for g in (gradients[i] for i in order):
        rest[g.key] = rest.get(g.key, 0) + g.size * g.itemsize
    buckets: list[Layout] = []
    for i in order:
        g = gradients[i]
        open_.setdefault(g.key, []).append(i)
        bytes_[g.key] = bytes_.get(g.key, 0) + g.size * g.itemsize
        rest[g.key] -= g.size * g.itemsize
        limit = min(first_bytes, cap_bytes) if not closed.get(g.key) else cap_bytes
        limit = min(limit, max(first_bytes, (rest[g.key] + bytes_[g.key]) // _TAPER))
        if caps:
            limit = caps[min(len(buckets), len(caps) - 1)]
        if bytes_[g.key] >= limit:
            buckets.append(_lay_out(gradients, open_.pop(g.key)))
            bytes_[g.key] = 0
            closed[g.key] = closed.get(g.key, 0) + 1
    buckets += [_lay_out(gradients, indices) for indices in open_.values()]
    return buckets


def _lay_out(gradients: Sequence[Gradient], indices: Sequence[int]) -> Layout:
    offsets, end = [], 0
    first = gradients[indices[0]]
    step = max(1, _ALIGN // first.itemsize)
    for i in indices:
        offsets.append(end)
        end += -(-gradients[i].size // step) * step
    return Layout(tuple(indices), tuple(offsets), end, first.key)


class Times:
    """When, in the last backward, a bucket had all its gradients, was handed over, and had its average.

    exposed: the seconds that the program stood still for it. took: the seconds for which another thread worked on its
    average; 0.0 if none did. waits: for the gradient of a parameter elsewhere, too.
    """

    ready = launched = finished = exposed = took = 0.0
    waits = False


class Bucket(Times):
    """Flat memory for the gradients of some parameters, and the state of its reduction."""

    def __init__(
        self, layout: Layout, names: Sequence[str], parameters: Sequence[Tensor], c: Communicator, prefix: str
    ) -> None:
        self.layout = layout
        self.label = prefix + ", ".join(names[i] for i in layout.indices)
        like = parameters[layout.indices[0]]._array
        backend = backend_for(like)
        # `host` is what the communicator reads; on a CPU, and with NCCL, the gradients lie there themselves.
        self.host: Any = None
        self.flat: Any = None
        self.stage: Any = None
        if backend.kind == "cpu":
            self.host = self.flat = c.allocate(layout.length, like.dtype)
        else:
            self.flat = backend.new_zeros(like, (layout.length,))
            if c.transport == "nccl":
                self.host = self.flat
            else:
                from ...backend.cuda.staging import Stage, room_for

                self._room = c.allocate(room_for(layout.length, like.dtype), like.dtype)
                self.stage = Stage(self._room, layout.length, like)
                self.host = self.stage.host
        self.views: list[Tensor] = []
        for i, offset in zip(layout.indices, layout.offsets, strict=True):
            array = parameters[i]._array
            if parameters[i].grad_dtype is not parameters[i].dtype:
                raise RuntimeError(
                    f"the gradient of '{names[i]}' has grad_dtype {parameters[i].grad_dtype}; under DistributedDataParallel "
                    f"it must be that of the parameter, {parameters[i].dtype}"
                )
            self.views.append(lent(wrap(shaped_like_leaf(self.flat[offset : offset + array.size], array))))
        self.missing = len(layout.indices)
        self.work: ArrayWork | HookedWork | None = None
        self.began = 0.0  # when its average was begun, while a profiler listens

    def renewed(self, view: Tensor) -> Tensor:
        """Another tensor where `view` lies, which the program keeps although it is no gradient any more: its elements move out."""
        at = next(i for i, v in enumerate(self.views) if v is view)
        self.views[at] = lent(wrap(view._array))
        move_out(view)
        return self.views[at]

    def clear(self) -> None:
        """Count as zeros in the next reduction."""
        self.flat[...] = 0

    def scale_by(self, factor: float, parts: int) -> None:
        """Multiply the average by `factor`, and divide it by `parts`, which are micro-batches."""
        if factor != 1.0:
            self.flat *= factor
        if parts > 1:
            self.flat /= parts

    def start_hook(self, hook: Hook, bucket: GradBucket) -> None:
        """Let `hook` begin to communicate the bucket."""
        from .comm_hooks import HookedWork  # here and below, as few programs have hooks

        self.work = HookedWork(hook(bucket), wrap(self.flat))

    def start(self, c: Communicator | RecomputedSums) -> None:
        """Begin to average the bucket over the ranks; a staged one begins to go to the host, and `post` goes on."""
        if self.stage is None:
            self.post(c)
        else:
            self.stage.to_host(self.flat)

    def post(self, c: Communicator | RecomputedSums) -> None:
        """Hand the bucket to the communicator; a staged one as soon as it has come to the host."""
        if self.stage is not None:
            self.stage.synchronize()
        self.began = spans.now() if spans.detailed else 0.0
        self.work = c.all_reduce(self.host, "avg", self.label, async_op=True)

    def finish(self, backend: str) -> None:
        """Wait for the average. backend: how profilers call whoever made it."""
        assert self.work is not None
        self.work.wait()
        if self.began:
            name, track = f"{backend}:all_reduce", spans.COMMUNICATION
            spans.tell_detail("collective", name, self.began, track, shapes=[[self.layout.length]])
            self.began = 0.0
        averaged = isinstance(self.work, ArrayWork)
        if isinstance(self.work, ArrayWork) and self.work.carried is not None:
            began, self.finished = self.work.carried
            self.took = self.finished - began
        self.work = None
        if self.stage is not None and averaged:
            self.stage.from_host(self.flat)
        for view in self.views:
            view._versions[0] += 1
