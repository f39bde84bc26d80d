"""What `fully_shard` costs and saves beside DistributedDataParallel: the time of a GPT's step, and memory.

    ddprun -n 2 examples/benchmarks/sharding.py                     # steps of both in turn
    ddprun -n 2 examples/benchmarks/sharding.py --memory ddp        # the most memory that a rank had, one kind a run
    ddprun -n 2 examples/benchmarks/sharding.py --memory fully_shard

Memory is what the process had at most (VmHWM), shared memory included, less what it had before the model. `--batch 1` shows
parameters, gradients and optimizer state, as activations are few then.
"""

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter

from process_memory import memory

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.launcher.bench import models
from ddpgrad.nn.parallel import DistributedDataParallel


def step_of(kind: str, args: argparse.Namespace) -> Callable[[], None]:
    """A step of the model wrapped as `kind` says."""
    torch.manual_seed(0)
    job = models.gpt(torch, layers=args.layers, width=args.width, size=args.batch)
    model = job.model
    if kind == "ddp":
        model = DistributedDataParallel(model)
    else:
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    optimizer, batch = job.optimizer(model.parameters()), job.batch(dist.get_rank())

    def step() -> None:
        optimizer.zero_grad()
        job.loss(model, batch).backward()
        optimizer.step()

    return step


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--memory", choices=["ddp", "fully_shard"])
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=384)
    p.add_argument(
        "--batch", type=int, default=4, help="sequences of 128 on each rank (default: %(default)s)"
    )
    p.add_argument("--rounds", type=int, default=12)
    args = p.parse_args()
    dist.init_process_group()
    if args.memory:
        before = memory("VmRSS")
        step = step_of(args.memory, args)
        for _ in range(3):
            step()
        most = torch.tensor((memory("VmHWM") - before) >> 20)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            print(f"{args.memory}, {dist.get_world_size()} ranks: {most.item()} MiB a rank")
    else:
        steps = {kind: step_of(kind, args) for kind in ("ddp", "fully_shard")}
        times: dict[str, list[float]] = {kind: [] for kind in steps}
        for turn in range(2 + args.rounds):
            for kind, step in steps.items():
                dist.barrier()
                began = perf_counter()
                step(), step()
                if turn >= 2:
                    times[kind].append((perf_counter() - began) / 2)
        ratios = [b / a for a, b in zip(*times.values(), strict=True)]
        if dist.get_rank() == 0:
            print(
                f"{dist.get_world_size()} ranks: ddp {1e3 * median(times['ddp']):.0f} ms, fully_shard "
                f"{1e3 * median(times['fully_shard']):.0f} ms; ratio {median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})"
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
