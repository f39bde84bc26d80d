"""One rank of one stack: waits for orders on a socket, times steps of models or layers or all-reduces, answers.

    python worker.py STACK SOCKET RANK RANKS MEETING

Orders and answers are lines of JSON. Between orders the worker sleeps in `recv`, so that the
stacks do not take time from each other.
"""

import json
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from time import perf_counter
from typing import Any

import floor
import layer_steps
from process_memory import memory

from ddpgrad.launcher.bench import models

Reduce = Callable[[], Any]


class Ddpgrad:
    """The ranks that ddprun started; they meet in shared memory."""

    def __init__(self, rank: int, ranks: int, meeting: str) -> None:
        import ddpgrad
        import ddpgrad.distributed as dist
        from ddpgrad.nn.parallel import DistributedDataParallel

        dist.init_process_group()
        self.torch, self.dist, self.DDP = ddpgrad, dist, DistributedDataParallel
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.barrier, self.leave = dist.barrier, dist.destroy_process_group

    def all_reduce(self, elements: int) -> Reduce:
        """Of memory where a bucket lies, as DistributedDataParallel does it."""
        from ddpgrad.distributed.process_group import default_group

        communicator = default_group().communicator
        flat = communicator.allocate(elements, "float32")
        return lambda: communicator.all_reduce(flat)


class Captured(Ddpgrad):
    """The same with steps that are captured."""


class PyTorch:
    """PyTorch's CPU build, its ranks joined by Gloo."""

    def __init__(self, rank: int, ranks: int, meeting: str) -> None:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
        self.torch, self.dist, self.DDP = torch, dist, DistributedDataParallel
        self.rank, self.ranks = rank, ranks
        self.barrier, self.leave = dist.barrier, dist.destroy_process_group

    def all_reduce(self, elements: int) -> Reduce:
        tensor = self.torch.zeros(elements)
        return lambda: self.dist.all_reduce(tensor)


class Compiled(PyTorch):
    """The same with models that `torch.compile` compiles."""


class PlainMPI:
    """MPI's own `Allreduce` through mpi4py, on NumPy arrays; it trains nothing."""

    def __init__(self, rank: int, ranks: int, meeting: str) -> None:
        from mpi4py import MPI

        self.world = MPI.COMM_WORLD
        self.in_place = MPI.IN_PLACE
        self.rank, self.ranks = self.world.rank, self.world.size
        self.barrier, self.leave = self.world.Barrier, MPI.Finalize

    def all_reduce(self, elements: int) -> Reduce:
        import numpy as np

        array = np.zeros(elements, np.float32)
        return lambda: self.world.Allreduce(self.in_place, array)


STACKS: dict[str, Callable[[int, int, str], Any]] = {
    "ddpgrad": Ddpgrad, "captured": Captured, "PyTorch": PyTorch, "compiled": Compiled, "MPI": PlainMPI,
}  # fmt: skip


class TrainingStep:
    """One whole step of the model `name`: forward, perhaps under autocast, backward with its all-reduces, update."""

    def __init__(self, stack: Any, name: str, autocast: str | None) -> None:
        self.stack, self.autocast = stack, autocast
        torch = stack.torch
        torch.manual_seed(0)
        self.job = models.MODELS[name](torch)
        self.model = stack.DDP(
            torch.compile(self.job.model) if isinstance(stack, Compiled) else self.job.model
        )
        self.optimizer = self.job.optimizer(self.model.parameters())
        self.batch = self.job.batch(stack.rank)
        self.run = torch.captured_step(self.step) if isinstance(stack, Captured) else self.step

    def __call__(self) -> None:
        self.run(self.stack.reduces, *self.batch)

    def step(self, reduces: bool, *batch: Any) -> None:
        torch, autocast = self.stack.torch, self.autocast
        self.optimizer.zero_grad()
        with nullcontext() if reduces else self.model.no_sync():
            with torch.autocast("cpu", autocast and getattr(torch, autocast), autocast is not None):
                loss = self.job.loss(self.model, batch)
            loss.backward()
        self.optimizer.step()

    def least(self) -> floor.Work:
        return floor.work_of(self, list(self.model.parameters()), self.optimizer)


def timed(work: Callable[[], Any], count: int) -> list[float]:
    """Seconds of each of `count` calls."""
    times = [perf_counter()]
    for _ in range(count):
        work()
        times.append(perf_counter())
    return [b - a for a, b in pairwise(times)]


def main() -> None:
    name, address, rank, ranks, meeting = sys.argv[1:]
    stack = STACKS[name](int(rank), int(ranks), meeting)
    line = socket.socket(socket.AF_UNIX)
    line.connect(address)
    orders, answers = line.makefile("r"), line.makefile("w")

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    answer(rank=stack.rank, ranks=stack.ranks)
    work: Callable[[], Any] = lambda: None  # noqa: E731
    for text in orders:
        order = json.loads(text)
        if "dtype" in order:
            stack.torch.set_default_dtype(getattr(stack.torch, order["dtype"]))
        if order["do"] == "model":
            work = TrainingStep(stack, order["name"], order["autocast"])
            answer(ready=True)
        elif order["do"] == "peak":
            answer(bytes=memory("VmHWM"))
        elif order["do"] == "floor":
            assert isinstance(work, TrainingStep)
            least = work.least()
            stack.barrier()
            answer(floor_s=floor.floor_s(least, floor.rates()))
        elif order["do"] == "layer":
            stack.torch.manual_seed(0)
            try:
                work = layer_steps.STEPS[order["name"]](stack.torch)
            except NotImplementedError:
                answer(ready=False)
            else:
                answer(ready=True)
        elif order["do"] == "all_reduce":
            work = stack.all_reduce(order["bytes"] // 4)
            answer(ready=True)
        else:
            stack.reduces = order["reduces"]
            stack.barrier()
            answer(seconds=timed(work, order["count"]))
    stack.leave()


if __name__ == "__main__":
    main()
