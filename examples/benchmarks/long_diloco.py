"""DiLoCo's claim, small: from a start that was trained before, does it reach the loss of ranks that average every step?

    ddprun -n 4 --procs 1 examples/benchmarks/long_diloco.py      (some minutes on one core)

As in its paper (https://arxiv.org/abs/2311.08105) one worker trains a GPT for `--before` steps, and from there each way goes on for
as many steps of every worker: one worker alone, DistributedDataParallel, and DiLoCo with meetings at several distances. All have
the same schedule of the learning rate, the same batch a worker, and data that is not repeated. A line tells the validation loss
at the quarters of the way, at which parts meet: `--steps` is a multiple of four times each distance.
"""

import argparse
import copy
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from train_gpt import GPT, Windows, evaluate, learning_rate, read_text

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad.distributed.algorithms.diloco import DiLoCo
from ddpgrad.distributed.optim import PostLocalSGDOptimizer
from ddpgrad.nn.parallel import DistributedDataParallel
from ddpgrad.utils.data import DataLoader, DistributedSampler

CONTEXT = 64


def train(
    model: GPT, way: dict[str, Any] | None, given: argparse.Namespace, data: Windows, steps: range
) -> list[Any]:
    """Train `model` alone, or as `way` says: by DistributedDataParallel ({}) or DiLoCo; its state at each quarter."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr, betas=(0.9, 0.95), weight_decay=0.1)
    replica, stepper = model, optimizer
    if way:
        stepper = PostLocalSGDOptimizer(optimizer, DiLoCo(model.parameters(), **way))
    elif way is not None:
        replica = DistributedDataParallel(model)
    workers, worker = (1, 0) if way is None else (dist.get_world_size(), dist.get_rank())
    sampler = DistributedSampler(data, workers, worker, seed=given.seed + steps.start)
    states = []
    for step, (x, y) in zip(steps, DataLoader(data, given.batch, sampler=sampler), strict=False):
        for group in optimizer.param_groups:  # the optimizer is new: its first steps are small
            slow = min(1.0, (step - steps.start + 1) / 20)
            group["lr"] = given.lr * learning_rate(step, given.before + given.steps) * slow
        optimizer.zero_grad()
        F.cross_entropy(replica(x).reshape(-1, 256), y.reshape(-1)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        stepper.step()
        if (step + 1 - steps.start) % (len(steps) // 4) == 0:
            states.append(copy.deepcopy(model.state_dict()))
    return states


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument(
        "--before", type=int, default=1000, help="steps of one worker that come first (%(default)s)"
    )
    p.add_argument("--steps", type=int, default=2000, help="steps of each worker (%(default)s)")
    p.add_argument("--every", type=int, nargs="+", default=[20, 100], help="steps between meetings (20 100)")
    p.add_argument("--batch", type=int, default=4, help="sequences of 64 bytes of a worker (%(default)s)")
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=0)
    given = p.parse_args()
    if given.steps % 4 or any(given.steps // 4 % every for every in given.every):
        p.error(f"--steps {given.steps} is no multiple of four times each of --every {given.every}")
    dist.init_process_group()
    rank, workers = dist.get_rank(), dist.get_world_size()
    training, validation = (Windows(text, CONTEXT) for text in read_text(None))
    torch.manual_seed(given.seed)
    model = GPT(CONTEXT, given.layers, given.width, 2)

    def go_on(way: dict[str, Any] | None, steps: range) -> list[float]:
        """The validation losses at the quarters."""
        alone = way is None and rank > 0
        states = [model.state_dict()] * 4 if alone else train(model, way, given, training, steps)
        losses = []
        for state in states:
            model.load_state_dict(state)
            if way is None:
                for value in model.state_dict().values():
                    dist.broadcast(value, 0)
            losses.append(evaluate(model, validation, 16, "cpu"))
        return losses

    def tell(name: str, losses: list[float]) -> None:
        if rank == 0:
            print(f"{name:34}" + "".join(f"{loss:9.4f}" for loss in losses), flush=True)

    tell(f"before: {given.before} steps of one worker", go_on(None, range(given.before))[-1:])
    start = copy.deepcopy(model.state_dict())
    ways: dict[str, dict[str, Any] | None] = {"one worker": None, f"{workers} workers, DDP": {}}
    for every in given.every:
        ways[f"{workers} workers, DiLoCo each {every}"] = {"sync_every": every}
    ways[f"{workers} workers, each {given.every[0]}, 8 bits"] = {
        "sync_every": given.every[0],
        "should_quantize": True,
    }
    for name, way in ways.items():
        model.load_state_dict(start)
        tell(name, go_on(way, range(given.before, given.before + given.steps)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
