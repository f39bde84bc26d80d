"""One rank of a job that trains a model and says where its time went. It runs on ddpgrad, or on PyTorch with Gloo or NCCL.

`jobs.run` starts it, and reads the one line that rank 0 writes: the `Training` as JSON, after `MARK`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

from ddpgrad.core import environment

from . import machine
from .models import Job, named

MARK = "ddprun-bench: "
PARTS = ("wait", "forward", "backward", "optimizer")
_WARM_UP = 14  # the reducer lays its buckets out after the first step, and notes arrivals in the next ten
_LEAST, _MOST = 5, 2000
_TURNS = 4  # of steps with and without averages, so that a machine that slows down slows both
_BATCHES = 4


@dataclass(frozen=True)
class Training:
    """What a job of one stack on so many ranks took. Times are seconds, and of the slowest rank.

    samples: of a rank's batch. steps: each step. unsynchronised: steps without an all-reduce. parts: medians of a step's
    `PARTS`; wait is for the batch. memory: the most bytes that each rank had. recording: of rank 0, see `cluster.Recording`;
    exposed: what its backward stood still for buckets, and buckets what `DistributedDataParallel.explain` says of each; None for
    PyTorch.
    """

    stack: str
    ranks: int
    device: str
    samples: int
    parameters: int
    nbytes: int
    steps: list[float]
    unsynchronised: list[float]
    parts: dict[str, float]
    memory: list[int]
    hosts: list[str]
    machine: dict[str, str]
    exposed: float | None
    buckets: list[dict[str, Any]] | None
    recording: dict[str, Any] | None

    @property
    def step(self) -> float:
        """The median step."""
        return median(self.steps)

    @property
    def added(self) -> float:
        """What a step takes longer for its all-reduces."""
        return max(0.0, self.step - median(self.unsynchronised))


def backend(device: str) -> str | None:
    """What ddpgrad's ranks are to meet by: NCCL where several have a GPU each, unless DDPGRAD_TRANSPORT says otherwise."""
    several = environment.launch().world_size > 1
    return "nccl" if device == "cuda" and several and not environment.transport() else None


class _Stack:
    """ddpgrad or PyTorch, and this process's rank in it."""

    def __init__(self, name: str, device: str) -> None:
        package = "torch" if name == "torch" else "ddpgrad"
        self.torch: Any = importlib.import_module(package)
        self.dist: Any = importlib.import_module(f"{package}.distributed")
        parallel: Any = importlib.import_module(f"{package}.nn.parallel")
        self.DDP, self.device = parallel.DistributedDataParallel, device
        if package == "torch":
            self.dist.init_process_group("nccl" if device == "cuda" else "gloo")
        else:
            self.dist.init_process_group(backend(device))
        if device == "cuda":
            self.device = f"cuda:{self.dist.get_node_local_rank()}"
            self.torch.cuda.set_device(self.device)
        self.rank, self.ranks = self.dist.get_rank(), self.dist.get_world_size()

    def gathered(self, value: Any) -> list[Any]:
        """What each rank has."""
        found: list[Any] = [None] * self.ranks
        self.dist.all_gather_object(found, value)
        return found

    def finish(self) -> None:
        """Wait for the device."""
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def memory(self) -> int:
        """The most bytes that this process, or its GPU, has had."""
        if self.device != "cpu":
            return self.torch.cuda.max_memory_allocated()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class _Steps:
    """The steps of the job, and what the last ones took, by part."""

    def __init__(self, stack: _Stack, job: Job, workers: int) -> None:
        self._stack, self._job = stack, job
        model = job.model.to(stack.device)
        # Steps without averages let replicas drift, for which a later check would end the run.
        unchecked = {"check_replicas_every": 0} if stack.torch.__name__ == "ddpgrad" else {}
        self.model = stack.DDP(model, device_ids=None, **unchecked)
        self._optimizer = job.optimizer(self.model.parameters())
        self._batches, self.samples = _loaded(stack, job, workers)
        self.parts: list[tuple[float, ...]] = []

    def run(self, count: int, synchronised: bool = True) -> list[float]:
        """Seconds of each of `count` steps."""
        self.parts.clear()
        self._stack.dist.barrier()
        for _ in range(count):
            self._step(synchronised)
        return [sum(parts) for parts in self.parts]

    def _step(self, synchronised: bool) -> None:
        at = [perf_counter()]

        def passed() -> None:
            self._stack.finish()
            at.append(perf_counter())

        batch = tuple(tensor.to(self._stack.device) for tensor in next(self._batches))
        passed()
        self._optimizer.zero_grad()
        with nullcontext() if synchronised else self.model.no_sync():
            loss = self._job.loss(self.model, batch)
            passed()
            loss.backward()
        passed()
        self._optimizer.step()
        passed()
        self.parts.append(tuple(after - before for before, after in pairwise(at)))


def _loaded(stack: _Stack, job: Job, workers: int) -> tuple[Iterator[Any], int]:
    """Batches from a DataLoader, without an end, and the samples of one."""
    data: Any = importlib.import_module(f"{stack.torch.__name__}.utils.data")
    drawn = [job.batch(stack.rank * _BATCHES + n) for n in range(_BATCHES)]
    whole = data.TensorDataset(*(stack.torch.cat(column) for column in zip(*drawn, strict=True)))
    samples = len(drawn[0][0])
    loader = data.DataLoader(
        whole, samples, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )

    def endless() -> Iterator[Any]:
        while True:
            yield from loader

    return endless(), samples


def measure(stack: _Stack, name: str, make: Callable[..., Job], given: argparse.Namespace) -> Training:
    """Train for about `given.seconds` with averages, and for as many steps without. Collective."""
    stack.torch.manual_seed(0)
    job = make(stack.torch, **({"size": given.batch} if given.batch else {}))
    if not isinstance(job, Job):
        raise TypeError(
            f"--model {given.model} returned a {type(job).__name__}; expected a ddpgrad.launcher.bench.models.Job, with model, loss, "
            "batch and optimizer"
        )
    steps = _Steps(stack, job, given.workers)
    warm = median(max(each) for each in zip(*stack.gathered(steps.run(_WARM_UP)), strict=True))
    count = stack.gathered(min(_MOST, max(_LEAST, round(given.seconds / warm))))[0]
    own: dict[bool, list[float]] = {True: [], False: []}
    rows: list[tuple[float, ...]] = []
    for _ in range(_TURNS):
        own[True] += steps.run(-(-count // _TURNS))
        rows += steps.parts
        if stack.ranks > 1:
            own[False] += steps.run(-(-count // _TURNS), synchronised=False)
    took = stack.gathered(own[True])
    parts = stack.gathered([median(column) for column in zip(*rows, strict=True)])
    told = steps.model.explain() if name == "ddpgrad" else None
    recording = None
    if told is not None:
        from ddpgrad.distributed.ddp.what_if import recorded

        noted = recorded(steps.model.reducer)
        recording = noted and asdict(noted)
    alone = stack.gathered(own[False]) if stack.ranks > 1 else took
    here = machine.describe()
    if name == "torch":
        here["torch"] = stack.torch.__version__
    if given.device == "cuda":
        here["gpu"] = stack.torch.cuda.get_device_name()
    return Training(
        stack=name, ranks=stack.ranks, device=given.device, samples=steps.samples,
        parameters=sum(p.numel() for p in job.model.parameters()),
        nbytes=sum(p.numel() * p.element_size() for p in job.model.parameters()),
        steps=[max(each) for each in zip(*took, strict=True)],
        unsynchronised=[max(each) for each in zip(*alone, strict=True)],
        parts=dict(zip(PARTS, (max(each) for each in zip(*parts, strict=True)), strict=True)),
        memory=stack.gathered(stack.memory()),
        hosts=stack.gathered(here["host"]), machine=here,
        exposed=told and told["exposed"], buckets=told and told["buckets"], recording=recording,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stack", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    stack = _Stack(given.stack, given.device)
    if given.stack == "torch":
        stack.torch.set_num_threads(given.threads)  # as ddprun's option does
    found = measure(stack, given.stack, named(given.model), given)
    if stack.rank == 0:
        print(MARK + json.dumps(asdict(found)), flush=True)
    stack.dist.barrier()
    if given.stack == "torch":
        sys.stdout.flush()
        os._exit(0)  # Gloo's threads sometimes abort a process that ends by itself
    stack.dist.destroy_process_group()


if __name__ == "__main__":
    main()
