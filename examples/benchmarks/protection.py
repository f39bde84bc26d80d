"""What a run pays for being protected, when nothing goes wrong.

    ddprun -n 2 --watchdog 60 examples/benchmarks/protection.py

Trains the GPT of vs_torch.py, in turns with and without what belongs to each step: the look at gradients
that are not finite, and the question whether a signal has come. On a busy machine the difference is lost
in noise; so each part is measured by itself as well, in calls whose median is taken. The check
of the replicas comes once in a hundred steps; a thread tells the launcher how far the rank has come.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.launcher import Checkpointer
from ddpgrad.launcher.bench import models
from ddpgrad.nn.parallel import DistributedDataParallel

EVERY = 100  # steps between two checks of the replicas, as by default


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=12, help="turns of each way (default: %(default)s)")
    p.add_argument("--steps", type=int, default=4, help="steps in a turn (default: %(default)s)")
    return p.parse_args()


def heartbeat_seconds() -> float:
    """The processor time that the thread for the launcher has taken; 0 without ddprun."""
    for thread in threading.enumerate():
        if thread.name == "ddprun heartbeat":
            fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def per_call(action: Callable[[], object], count: int) -> float:
    """The median of the seconds of `count` calls."""
    times = [time.perf_counter()]
    for _ in range(count):
        action()
        times.append(time.perf_counter())
    return median(b - a for a, b in pairwise(times))


def main() -> None:
    args = parse()
    dist.init_process_group()
    torch.manual_seed(0)
    job = models.gpt(torch)
    ddp = DistributedDataParallel(job.model, check_replicas_every=EVERY)
    optimizer = job.optimizer(ddp.parameters())
    batch = job.batch(dist.get_rank())
    check, steps = ddp.replica_check, 0

    with TemporaryDirectory() as folder:
        checkpoints = Checkpointer(folder)

        def step(protected: bool) -> float:
            nonlocal steps
            ddp.reducer.finite.enabled = protected
            check.every = 0  # see below
            began = time.perf_counter()
            optimizer.zero_grad()
            job.loss(ddp, batch).backward()
            optimizer.step()
            if protected:
                checkpoints.step(steps)
            steps += 1
            return time.perf_counter() - began

        for _ in range(3):
            step(True)
        began, heartbeat_before = time.perf_counter(), heartbeat_seconds()
        times: dict[bool, list[float]] = {True: [], False: []}
        ratios = []
        for turn in range(args.rounds):
            both = {
                way: [step(way) for _ in range(args.steps)]
                for way in ((True, False) if turn % 2 else (False, True))
            }
            ratios.append(median(both[True]) / median(both[False]))
            for way, seconds in both.items():
                times[way] += seconds
        heartbeat = (heartbeat_seconds() - heartbeat_before) / (time.perf_counter() - began)
        plain = median(times[False])
        dist.barrier()
        ask = per_call(lambda: checkpoints.step(steps), 500)
    buckets = ddp.reducer.buckets
    ddp.reducer.finite.enabled = True
    parts = {
        "look at the gradients": per_call(lambda: [ddp.reducer._look_at(bucket) for bucket in buckets], 50),
        "question for signals": ask,
        f"check of the replicas, a {EVERY}th": per_call(lambda: check.compare(steps), 10) / EVERY,
        # A collective of one element is little more than the agreement about it.
        f"agreement on {len(buckets)} buckets": per_call(lambda: dist.all_reduce(torch.ones(1)), 2000)
        * len(buckets),
        "heartbeat": heartbeat * plain,
    }
    if dist.get_rank() == 0:
        print(f"step {plain * 1e3:.0f} ms; with protection {median(ratios):.4f} of that, the median of {args.rounds} rounds "
              f"({min(ratios):.3f} to {max(ratios):.3f})")  # fmt: skip
        for name, seconds in {**parts, "together": sum(parts.values())}.items():
            print(f"{name:<32} {seconds * 1e3:8.3f} ms  {seconds / plain:.3%} of a step")


if __name__ == "__main__":
    main()
