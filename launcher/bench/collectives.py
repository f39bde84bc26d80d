"""One rank of a job that times collectives: ddpgrad beside PyTorch's Gloo and plain MPI, in the same processes, in turns.

`jobs.run` starts it, and reads the one line that rank 0 writes: `Collectives` as JSON, after `training.MARK`. Sizes are as in
nccl-tests (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md): of the larger of a rank's two buffers; a bus
bandwidth is what the slowest link must carry at least, by the time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import ddpgrad
import ddpgrad.distributed as ddpgrad_dist
from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.process_group import default_group

from . import machine
from .training import MARK, backend

if TYPE_CHECKING:
    from ddpgrad.distributed.communicator.communicator import Communicator

Step = Callable[[], Any]

_WARM_UP = 120
"""Calls before the first that is timed: small sums are compiled after a hundred."""
_BYTES_OF_A_ROUND = 4 << 20
_CALLS_OF_A_ROUND = 500
_SECONDS_OF_A_ROUND = 0.5  # of one collective of one size, where the network is slow or far


OPS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
}
"""Of each collective of n ranks: bus bandwidth by bytes over time."""

BUCKET = "ddpgrad bucket"
"""All-reduces of memory where a bucket lies: what DistributedDataParallel does."""
MEMCPY = "memcpy"
"""All ranks copy a buffer of the size at once."""


@dataclass(frozen=True)
class Row:
    """One collective of one size by one `who`: seconds a call in each round, of the slowest rank, and elements that were wrong."""

    op: str
    nbytes: int
    who: str
    seconds: list[float]
    wrong: int


@dataclass(frozen=True)
class Collectives:
    """What collectives take between so many ranks. barrier: seconds of one, which is nothing but the ranks' agreement."""

    ranks: int
    device: str
    transport: str
    barrier: float
    rows: list[Row]
    hosts: list[str]
    machine: dict[str, str]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], **rest: Any) -> Collectives:
        """From its JSON."""
        return cls(rows=[Row(**row) for row in rows], **rest)


class _ByDist:
    """Collectives of ordinary tensors, by the `distributed` of ddpgrad or PyTorch."""

    def __init__(self, name: str, torch: Any, dist: Any, device: str) -> None:
        self.name, self._torch, self._dist, self._device = name, torch, dist, device
        self._rank, self._ranks = dist.get_rank(), dist.get_world_size()

    def step(self, op: str, elements: int) -> tuple[Step, Callable[[], Any]] | None:
        """What calls `op` once, and what returns its result as an array."""
        torch, dist, n = self._torch, self._dist, self._ranks
        whole = torch.full((elements,), float(self._rank + 1), device=self._device)
        part = torch.full((elements // n,), float(self._rank + 1), device=self._device)
        result = {"reduce_scatter": part, "all_to_all": torch.empty_like(whole)}.get(op, whole)
        calls: dict[str, Step] = {
            "all_reduce": lambda: dist.all_reduce(whole),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
            "all_to_all": lambda: dist.all_to_all_single(result, whole),
            "broadcast": lambda: dist.broadcast(whole, 0),
        }
        call = calls[op]
        if self._device != "cpu":
            call = lambda: (calls[op](), torch.cuda.synchronize())  # noqa: E731
        return call, lambda: result.cpu().numpy()


class _Bucket:
    """All-reduces of a bucket's memory."""

    name = BUCKET

    def __init__(self, c: Any) -> None:
        self._c = c

    def step(self, op: str, elements: int) -> tuple[Step, Callable[[], Any]] | None:
        if op != "all_reduce":
            return None
        flat = self._c.allocate(elements, "float32")
        flat[:] = self._c.rank + 1
        return lambda: self._c.all_reduce(flat, label="benchmark"), lambda: flat


class _PlainMPI:
    """MPI's own collectives through mpi4py, on NumPy arrays."""

    name = "MPI"

    def __init__(self) -> None:
        from mpi4py import MPI

        self._world, self._in_place = MPI.COMM_WORLD, MPI.IN_PLACE

    def step(self, op: str, elements: int) -> tuple[Step, Callable[[], Any]] | None:
        world, place = self._world, self._in_place
        whole = np.full(elements, world.rank + 1, np.float32)
        part = np.full(elements // world.size, world.rank + 1, np.float32)
        result = {"reduce_scatter": part, "all_to_all": np.empty_like(whole)}.get(op, whole)
        calls: dict[str, Step] = {
            "all_reduce": lambda: world.Allreduce(place, whole),
            "reduce_scatter": lambda: world.Reduce_scatter_block(whole, part),
            "all_gather": lambda: world.Allgather(part, whole),
            "all_to_all": lambda: world.Alltoall(whole, result),
            "broadcast": lambda: world.Bcast(whole, 0),
        }
        return calls[op], lambda: result


class _Memcpy:
    name = MEMCPY

    def step(self, op: str, elements: int) -> tuple[Step, Callable[[], Any]] | None:
        a, b = np.zeros(elements, np.float32), np.zeros(elements, np.float32)
        return lambda: np.copyto(a, b), lambda: None


def expected(op: str, rank: int, ranks: int, elements: int) -> np.ndarray:
    """The result on `rank` where each rank r begins with r + 1 everywhere."""
    if op in ("all_gather", "all_to_all"):
        return np.repeat(np.arange(1, ranks + 1), elements // ranks).astype(np.float32)
    if op == "broadcast":
        return np.ones(elements, np.float32)
    size = elements // ranks if op == "reduce_scatter" else elements
    return np.full(size, ranks * (ranks + 1) / 2, np.float32)


def _players(device: str, versus: Sequence[str]) -> list[Any]:
    c = default_group().communicator
    found: list[Any] = [_ByDist("ddpgrad", ddpgrad, ddpgrad_dist, device)]
    if device == "cpu":
        found += [_Bucket(c), _Memcpy()]
    if "mpi" in versus:
        found.append(_PlainMPI())
    if "torch" in versus:
        import torch
        import torch.distributed as torch_dist

        # Its newer names for two of these are not in the releases before.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")

        folder = c.broadcast_object(tempfile.mkdtemp() if c.rank == 0 else None)
        torch_dist.init_process_group(
            "nccl" if device != "cpu" else "gloo",
            init_method=(Path(folder) / "store").as_uri(), rank=c.rank, world_size=c.size,
        )  # fmt: skip
        torch.set_num_threads(1)
        found.append(_ByDist("PyTorch", torch, torch_dist, device))
    return found


def measure(players: Sequence[Any], op: str, nbytes: int, rounds: int) -> list[Row]:
    """Each of `players` calls `op` in `rounds` rounds, in turns. Collective."""
    c = default_group().communicator
    elements = max(c.size, nbytes // 4 // c.size * c.size)
    calls = max(1, min(_CALLS_OF_A_ROUND, _BYTES_OF_A_ROUND // nbytes))
    steps, wrong = {}, {}
    for player in players:
        made = player.step(op, elements)
        if made is not None:
            steps[player.name], result = made
            steps[player.name]()
            found = result()
            wrong[player.name] = 0 if found is None else int(
                np.count_nonzero(found != expected(op, c.rank, c.size, elements))
            )  # fmt: skip
    for step in steps.values():
        for _ in range(_affordable(c, step, _WARM_UP if calls > 1 else 1)):
            step()
    counts = {name: _affordable(c, step, calls) for name, step in steps.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            c.barrier("benchmark")
            times[name].append(_mean_of(counts[name], step))
    slowest = np.max(c.all_gather(np.array(list(times.values()))), axis=0)
    mistakes = np.sum(c.all_gather(np.array(list(wrong.values()))), axis=0)
    return [
        Row(op, elements * 4, name, slowest[i].tolist(), int(mistakes[i])) for i, name in enumerate(steps)
    ]


def _mean_of(calls: int, step: Callable[[], object]) -> float:
    """Seconds of one of so many calls."""
    began = time.perf_counter()
    for _ in range(calls):
        step()
    return (time.perf_counter() - began) / calls


def _affordable(c: Communicator, step: Callable[[], object], most: int) -> int:
    """How many calls a round has time for, at most `most`: the same on all ranks, as over links that are slow or far."""
    slowest = float(np.max(c.all_gather(np.array(_mean_of(1, step)))))
    return max(1, min(most, int(_SECONDS_OF_A_ROUND / slowest)))


def agreement(rounds: int) -> float:
    """Seconds of a barrier: the least of `rounds` means of up to a hundred."""
    c = default_group().communicator

    def barrier() -> None:
        c.barrier("benchmark")

    calls = _affordable(c, barrier, 100)
    best = min(_mean_of(calls, barrier) for _ in range(rounds))
    return float(np.max(c.all_gather(np.array(best))))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ops", nargs="+", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--transport")
    parser.add_argument("--vs", nargs="*", default=[])
    given = parser.parse_args()
    ddpgrad_dist.init_process_group(given.transport or backend(given.device))
    device = given.device
    if device == "cuda":
        device = f"cuda:{ddpgrad_dist.get_node_local_rank()}"
        ddpgrad.cuda.set_device(device)
    c = default_group().communicator
    if c.size == 1:
        raise LaunchError("collectives of one rank move nothing; give two or more")
    players = _players(device, given.vs)
    rows = [
        row for op in given.ops for size in given.sizes for row in measure(players, op, size, given.rounds)
    ]
    here = machine.describe()
    hosts = c.all_gather_object(here["host"])
    found = Collectives(c.size, given.device, c.transport, agreement(given.rounds), rows, hosts, here)
    if c.rank == 0:
        print(MARK + json.dumps(asdict(found)), flush=True)
    ddpgrad_dist.destroy_process_group()


if __name__ == "__main__":
    main()
