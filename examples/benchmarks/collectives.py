"""How fast ranks of one host combine their buffers: ddpgrad beside MPI and PyTorch's Gloo, in one run.

    mpiexec -n 2 python examples/benchmarks/collectives.py        (Open MPI: add --bind-to none)
    ddprun -n 2 examples/benchmarks/collectives.py                (no MPI at hand)

The candidates take turns, so that what else the machine does hits all alike; the shortest and
the median time of each are shown. Gloo joins in where torch is installed. `busbw` is bytes a
rank must at least move, 2 (n-1)/n of the buffer, per second; `of memcpy` compares that with all
ranks copying a buffer of the size at once, which reads and writes each byte once.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.distributed.communicator.communicator import Communicator
from ddpgrad.distributed.ranks.host import current

Step = Callable[[np.ndarray], None]

_WARM_UP = 120
"""Sums before the first that is timed: small ones are compiled after a hundred."""


def candidates(c: Communicator) -> dict[str, Step]:
    """The all-reduces to compare, each on a buffer of float32, in place."""
    found: dict[str, Step] = {f"ddpgrad {c.transport}": lambda buffer: _wait(c, buffer)}
    dist.init_process_group(c.transport)
    found["  by Tensors"] = _by_tensors()
    if current().launch.mpi:
        from mpi4py import MPI

        if c.transport != "mpi":
            mpi = current().communicator("mpi")
            found["ddpgrad mpi"] = lambda buffer: _wait(mpi, buffer)
        version = MPI.Get_library_version().split("\n")[0][:16].strip()
        found[version] = lambda buffer: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, buffer)
    if find_spec("torch") is not None:
        found["Gloo"] = _gloo(c)
    return found


def _wait(c: Communicator, buffer: np.ndarray) -> None:
    c.all_reduce(buffer, label="benchmark")


def _by_tensors() -> Step:
    tensors: dict[int, torch.Tensor] = {}

    def step(buffer: np.ndarray) -> None:
        tensor = tensors.get(id(buffer))
        if tensor is None:
            tensor = tensors[id(buffer)] = torch.from_numpy(buffer)  # which keeps the buffer
        dist.all_reduce(tensor)

    return step


def _gloo(c: Communicator) -> Step:
    import torch as pytorch
    import torch.distributed as other

    store = c.broadcast_object(tempfile.mkdtemp() if c.rank == 0 else None)
    other.init_process_group(
        "gloo", init_method=(Path(store) / "store").as_uri(), rank=c.rank, world_size=c.size
    )
    pytorch.set_num_threads(1)
    return lambda buffer: other.all_reduce(pytorch.from_numpy(buffer))  # type: ignore[return-value]


def measure(
    c: Communicator, steps: dict[str, Step], buffer: np.ndarray, rounds: int
) -> dict[str, np.ndarray]:
    """Seconds of each candidate, by round; the slowest rank counts. All begin together."""
    count = max(1, min(500, (4 << 20) // buffer.nbytes))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(_WARM_UP if count > 1 else 1):
        for step in steps.values():
            step(buffer)
    for _ in range(rounds + 1):
        for name, step in steps.items():
            step(buffer)
            c.barrier()
            began = time.perf_counter()
            for _ in range(count):
                step(buffer)
            times[name].append((time.perf_counter() - began) / count)
    slowest = np.max(c.all_gather(np.array(list(times.values()))), axis=0)
    return dict(zip(steps, slowest[:, 1:], strict=True))


def agreement(c: Communicator, rounds: int) -> float:
    """Seconds of a barrier, which is nothing but the ranks' agreement on what they call."""
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(100):
            c.barrier("benchmark")
        best = min(best, (time.perf_counter() - began) / 100)
    return float(np.max(c.all_gather(np.array(best))))


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kib", type=int, nargs="+", default=[4, 64, 1024, 25 * 1024], help="sizes of buffers")
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--transport", choices=["shm", "mpi"], help="default: what ddpgrad chooses")
    args = p.parse_args()
    c = current().communicator(args.transport)
    steps = candidates(c)
    ours = next(iter(steps))
    seconds = agreement(c, args.rounds)
    if c.rank == 0:
        print(f"all-reduce of float32, {c.size} ranks; agreement alone: {seconds * 1e6:.1f} us")
        print(
            f"{'KiB':>6} {'':16} {'best us':>9} {'median':>9} {'busbw GB/s':>10} {'of memcpy':>9} {'x ours':>7}"
        )
    for kib in args.kib:
        buffer = c.allocate(kib * 256, np.float32)
        copy = np.empty_like(buffer)
        with_copy: dict[str, Step] = {**steps, "memcpy": lambda b, copy=copy: np.copyto(copy, b)}
        times = measure(c, with_copy, buffer, args.rounds)
        if c.rank == 0:
            show(kib, c.size, times, ours)


def show(kib: int, ranks: int, times: dict[str, np.ndarray], ours: str) -> None:
    """The lines of one size."""
    memcpy = kib * 1024 / times["memcpy"].min()
    for name, each in times.items():
        best = each.min()
        bandwidth = kib * 1024 / best * (1 if name == "memcpy" else 2 * (ranks - 1) / ranks)
        print(
            f"{kib:>6} {name:16} {best * 1e6:9.1f} {np.median(each) * 1e6:9.1f} {bandwidth / 1e9:10.2f} "
            f"{bandwidth / memcpy:9.2f} {best / times[ours].min():7.2f}"
        )


if __name__ == "__main__":
    main()
