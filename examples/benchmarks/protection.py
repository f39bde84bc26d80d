"""What a run pays for being protected, when nothing goes wrong.

    ddprun -n 2 --watchdog 60 examples/benchmarks/protection.py

Trains the GPT of vs_torch.py, and takes turns: some steps with all that can be switched off in a process (the look
at gradients that are not finite, the question whether a signal has come), some without. What comes
rarely, or beside the steps, is measured by itself: the check of the replicas, once in a hundred steps; the
thread that tells the launcher how far the rank has come; the agreement before each collective.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import models

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.nn.parallel import DistributedDataParallel
from launcher import Checkpointer

EVERY = 100  # steps between two checks of the replicas, as by default


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=12, help="turns of each way (default: %(default)s)")
    p.add_argument("--steps", type=int, default=4, help="steps in a turn (default: %(default)s)")
    return p.parse_args()


def pulse_seconds() -> float:
    """The processor time that the thread for the launcher has taken; 0 without ddprun."""
    for thread in threading.enumerate():
        if thread.name == "ddprun pulse":
            fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def per_call(action, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        action()
    return (time.perf_counter() - began) / count


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
        began, pulse_before = time.perf_counter(), pulse_seconds()
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
        pulse = (pulse_seconds() - pulse_before) / (time.perf_counter() - began)
    plain = median(times[False])
    dist.barrier()
    one_check = per_call(lambda: check.compare(steps), 3)
    # A collective of one element is little more than the agreement about it.
    tiny = torch.ones(1)
    agreement = per_call(lambda: dist.all_reduce(tiny), 2000)
    collectives = len(ddp.reducer.buckets)
    if dist.get_rank() == 0:
        in_steps = median(times[True]) / plain - 1
        rest = one_check / EVERY / plain + collectives * agreement / plain + pulse
        print(f"step {plain * 1e3:.1f} ms; with the protection of each step {in_steps:+.2%} "
              f"(rounds {min(ratios) - 1:+.2%} to {max(ratios) - 1:+.2%}, median {median(ratios) - 1:+.2%})")  # fmt: skip
        print(
            f"check of the replicas {one_check * 1e3:.1f} ms, each {EVERY} steps: {one_check / EVERY / plain:.3%}"
        )
        print(
            f"agreement on {collectives} collectives of {agreement * 1e6:.0f} us: {collectives * agreement / plain:.3%}"
        )
        print(f"pulse: {pulse:.3%} of a core")
        print(f"together: {median(ratios) - 1 + rest:+.2%} of a step")


if __name__ == "__main__":
    main()
