"""Two hosts, 50 Mbit/s between them: DDP, and DiLoCo, which meets once in `--every` steps.

    python examples/benchmarks/slow_link.py      (as root, with MPICH: pip install mpich)

The hosts are network namespaces of this machine, with one rank each. Each way trains the GPT example from the same start on
the same text for as many steps; a line tells the seconds of a step, what a rank sent, and the validation loss at the end.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "cluster")]

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad.distributed.algorithms.diloco import DiLoCo
from ddpgrad.distributed.optim import PostLocalSGDOptimizer
from ddpgrad.nn.parallel import DistributedDataParallel
from ddpgrad.utils.data import DataLoader, DistributedSampler

WAYS = {
    "DDP": None,
    "DiLoCo": {},
    "DiLoCo, 8 bits": {"should_quantize": True},
    "DiLoCo, 8 bits, 4 parts under way for 2 steps": {
        "should_quantize": True, "fragments": 4, "fragment_sync_delay": 2, "fragment_update_alpha": 0.5
    },
}  # fmt: skip


def sent() -> int:
    """Bytes that this host has sent over its link."""
    return int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


def train(way: str, steps: int, every: int) -> None:
    from train_gpt import GPT, Windows, evaluate, learning_rate, read_text

    training, validation = (Windows(text, 64) for text in read_text(None))
    loader = DataLoader(training, batch_size=8, sampler=DistributedSampler(training), drop_last=True)
    torch.manual_seed(0)
    model = GPT(64, 4, 128, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate(step, steps))
    options, replica, averager, stepper = WAYS[way], model, None, optimizer
    if options is None:
        replica = DistributedDataParallel(model)
    else:
        averager = DiLoCo(model.parameters(), every, **options)
        stepper = PostLocalSGDOptimizer(optimizer, averager)
    dist.barrier()
    began, before = time.perf_counter(), sent()
    for _, (x, y) in zip(range(steps), loader, strict=False):
        optimizer.zero_grad()
        F.cross_entropy(replica(x).reshape(-1, 256), y.reshape(-1)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        stepper.step()
        scheduler.step()
    if averager is not None:
        averager.synchronize()
    dist.barrier()
    seconds, mb = time.perf_counter() - began, (sent() - before) / 1e6
    loss = evaluate(model, validation, 16, "cpu")
    if dist.get_rank() == 0:
        print(f"{way:48}{seconds / steps:10.3f}{mb / steps:12.3f}{loss:12.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", default="50mbit", help="what each host may send (default 50mbit)")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=50, help="steps between meetings (default 50)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        dist.init_process_group()
        if dist.get_rank() == 0:
            print(f"{'':48}{'s a step':>10}{'MB a step':>12}{'loss':>12}", flush=True)
        for way in WAYS:
            train(way, given.steps, given.every)
        dist.destroy_process_group()
        return
    import namespaces

    if reason := namespaces.why_not(given.rate):
        sys.exit(f"slow_link.py {reason}")
    options = ["--steps", str(given.steps), "--every", str(given.every)]
    with namespaces.hosts(2, given.rate, timeout=3600) as run:
        ended = run(1, [sys.executable, __file__, "--inside", *options])
    print(ended.stdout, end="")
    if ended.returncode:
        sys.exit(ended.stderr)


if __name__ == "__main__":
    main()
