"""Sizes of buckets: what `ddp.explain()` predicts of a backward, against what it takes.

    ddprun -n 2 examples/benchmarks/bucket_caps.py                     # on this host
    python examples/benchmarks/bucket_caps.py --rate 200mbit           # two hosts (as root, with MPICH: pip install mpich)

The hosts are network namespaces of this machine, with one rank each. Models of `--layers` layers that differ in their buckets
take turns, a step each. One has the usual buckets; its recorded times predict those of the others, with all-reduces that are
fitted to the same times, and with some that are measured. Times are medians in milliseconds, of rank 0.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.nn.parallel import DistributedDataParallel

MIB = 1 << 20


def inside(width: int, layers: int, batch: int, rounds: int, caps: list[float]) -> None:
    """What each rank does."""
    dist.init_process_group()

    def model(**options: Any) -> DistributedDataParallel:
        torch.manual_seed(0)
        parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.Tanh())]
        return DistributedDataParallel(nn.Sequential(*parts), check_replicas_every=0, **options)

    whole = layers * (width + 1) * width * 4 / MIB
    models = {"usual": model()}
    models |= {f"{cap:g}": model(bucket_cap_mb=cap) for cap in caps}
    models["one bucket"] = model(bucket_cap_mb_list=[whole])
    models["auto"] = model(bucket_cap_mb="auto")
    x = torch.randn(batch, width)
    times: dict[str, list[float]] = {name: [] for name in models}
    for step in range(12 + rounds):
        if step == 12:
            models["usual"].explain()  # its next steps are noted
        names = list(models)
        for name in names[step % len(names) :] + names[: step % len(names)]:
            ddp = models[name]
            ddp.zero_grad()
            loss = ddp(x).square().mean()
            dist.barrier()
            began = time.perf_counter()
            loss.backward()
            if step >= 12:
                times[name].append(time.perf_counter() - began)
    fitted = models["usual"].explain()
    measured = models["usual"].explain(collective=True)
    if dist.get_rank() == 0:
        print(f"{whole:.1f} MiB of gradients, {dist.get_world_size()} ranks, {rounds} steps of each")
        for told, how in ((fitted, "fitted"), (measured, "measured")):
            cost = told["cost"]
            print(f"all-reduce, {how}: {cost}" if cost else told["unpredicted"])
        heads = ("buckets", "backward", "spread", "fitted", "error", "measured", "error")
        print(f"{'cap':>12}" + "".join(f"{head:>10}" for head in heads))
        for name, found in times.items():
            took = 1e3 * statistics.median(found)
            count = len(models[name].reducer.buckets)
            low, _, high = (1e3 * t for t in statistics.quantiles(found, n=4))
            line = f"{name:>12}{count:>10}{took:10.1f}{f'{low:.0f}-{high:.0f}':>10}"
            for told in (fitted, measured):
                rows = {row_name(row, n): row for n, row in enumerate(told["caps"])}
                if name in rows:
                    predicted = 1e3 * rows[name]["finished"]
                    line += f"{predicted:10.1f}{predicted / took - 1:10.1%}"
            print(line, flush=True)
        chosen = models["auto"].explain()
        print(f"auto chose {chosen['bucket_cap_bytes'] / MIB:.3g} MiB")
    dist.destroy_process_group()


def row_name(row: dict[str, Any], n: int) -> str:
    """The name that the models of `inside` have."""
    if not n:
        return "usual"
    return "one bucket" if row["cap_mb_list"] else f"{row['cap_bytes'] / MIB:g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", help="two hosts, with what each may send, such as 200mbit")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--batch", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--caps", type=float, nargs="+", default=[1, 5, 25])
    given = parser.parse_args()
    if given.rate is None:
        inside(given.width, given.layers, given.batch, given.rounds, given.caps)
        return
    sys.path.append(str(Path(__file__).parents[2] / "cluster"))
    import namespaces

    if reason := namespaces.why_not(given.rate):
        sys.exit(f"bucket_caps.py {reason}")
    options = [f"--{name}={getattr(given, name)}" for name in ("width", "layers", "batch", "rounds")]
    with namespaces.hosts(2, given.rate, timeout=1800) as run:
        ended = run(1, [sys.executable, __file__, *options, "--caps", *map(str, given.caps)])
    print(ended.stdout, end="")
    if ended.returncode:
        sys.exit(ended.stderr)


if __name__ == "__main__":
    main()
