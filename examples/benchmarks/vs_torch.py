"""Compare training steps and all-reduces with PyTorch's, and all-reduces with plain MPI's.

    python examples/benchmarks/vs_torch.py                      # everything, some minutes
    python examples/benchmarks/vs_torch.py --quick              # a rough look
    python examples/benchmarks/vs_torch.py --models gpt --ranks 2
    python examples/benchmarks/vs_torch.py --models gpt --ranks 1 --threads 2 --autocast bfloat16
    python examples/benchmarks/vs_torch.py --stacks captured ddpgrad PyTorch compiled

Every rank has one thread unless you say more. The stacks take turns within one run, so that a machine that is slow
for a while is slow for both; a figure is the ratio of the medians over all turns, and in
brackets the lowest and highest ratio of a single round. A step is forward, backward in
DistributedDataParallel (ddpgrad's ranks meet in shared memory, PyTorch's through Gloo), and the
optimizer (PyTorch's: fused). `captured` is ddpgrad with `captured_step`, `compiled` PyTorch with `torch.compile`.

Below each step: the floor, which is what the machine needs for its products and its parameters (`floor.py`), over the time that
ddpgrad took; what a rank had in memory at most; and the time from the start of its processes to the end of the first step.
"""

import argparse
import os
import platform
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median
from time import perf_counter

from players import Player, has_mpi, players

from ddpgrad.launcher.bench import models

ALL_REDUCE = "all_reduce"
DTYPES = ("float32", "bfloat16", "float16")
STACKS = ("ddpgrad", "captured", "PyTorch", "compiled")
SIZES = {"4 KB": 4 << 10, "1 MB": 1 << 20, "25 MB": 25 << 20}


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*models.MODELS, ALL_REDUCE]
    usual = [name for name in names if name != "resnet50"]
    p.add_argument(
        "--models", nargs="+", choices=names, default=usual, metavar="NAME",
        help=f"of {', '.join(names)} (default: all but resnet50, of which a step takes seconds)",
    )  # fmt: skip
    p.add_argument(
        "--stacks", nargs="+", choices=STACKS, default=["ddpgrad", "PyTorch"], metavar="STACK",
        help=f"of {', '.join(STACKS)}: the first is compared with each of the others (default: ddpgrad PyTorch)",
    )  # fmt: skip
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="numbers of ranks (default: 1 2)")
    p.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help="of the models (default: %(default)s)")
    p.add_argument("--autocast", choices=DTYPES[1:], help="compute the models' forward under autocast to it")
    p.add_argument("--threads", type=int, default=1, help="of each rank (default: %(default)s)")
    p.add_argument("--steps", type=int, help="repetitions in a turn (default: as many as fill half a second)")
    p.add_argument("--rounds", type=int, default=8, help="turns of each stack (default: %(default)s)")
    p.add_argument("--quick", action="store_true", help="3 rounds of shorter turns")
    args = p.parse_args()
    if min(args.ranks) < 1 or args.rounds < 1 or (args.steps is not None and args.steps < 1):
        p.error("--ranks, --rounds and --steps must be at least 1")
    if args.quick:
        args.rounds = min(args.rounds, 3)
    return args


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    scale, unit = next((s, u) for s, u in ((1, "s"), (1e-3, "ms"), (1e-6, "us")) if seconds >= s or s == 1e-6)
    return f"{seconds / scale:.3g} {unit}"


def rounds(team: list[Player], args: argparse.Namespace) -> list[list[list[float]]]:
    """For every player, the seconds of its repetitions in each round."""
    counts = []
    for player in team:
        one = player.turn(6)[-1]  # after what is compiled, captured, allocated or laid out in the first steps
        fill = (0.15 if args.quick else 0.5) / one
        counts.append(args.steps or max(2, min(2000, round(fill))))
    times: list[list[list[float]]] = [[] for _ in team]
    for turn in range(args.rounds):
        order = list(enumerate(team))
        for i, player in order if turn % 2 == 0 else order[::-1]:
            times[i].append(player.turn(counts[i]))
    return times


def report(what: str, team: list[Player], times: list[list[list[float]]]) -> float:
    """One line for each player that the first one is compared with; the last of the ratios."""
    ours, *others = [[median(turn) for turn in turns] for turns in times]
    mine = median(s for turn in times[0] for s in turn)
    ratio = 1.0
    for player, turns, turn_medians in zip(team[1:], times[1:], others, strict=True):
        theirs = median(s for turn in turns for s in turn)
        ratio = mine / theirs
        single = [a / b for a, b in zip(ours, turn_medians, strict=True)]
        print(
            f"{what:<26} {duration(mine):>9}  {player.stack:<8} {duration(theirs):>9}  "
            f"ratio {ratio:5.2f}  ({min(single):.2f} to {max(single):.2f})",
            flush=True,
        )
    return ratio


def compare_steps(name: str, ranks: int, args: argparse.Namespace) -> None:
    """One model, in processes of its own."""
    with players(args.stacks, ranks, args.threads) as team:
        starts = []
        for player in team:
            began = perf_counter()
            player.prepare(do="model", name=name, dtype=args.dtype, autocast=args.autocast)
            player.turn(1)
            starts.append(player.started_s + perf_counter() - began)
        times = rounds(team, args)
        report(f"{name}, {ranks} rank{'s' * (ranks > 1)}", team, times)
        peaks = [player.peak_bytes() / 2**20 for player in team]
        line = [f"memory {' / '.join(f'{peak:,.0f}' for peak in peaks)} MiB, {peaks[0] / peaks[-1]:.2f}",
                f"to the end of step 1: {' / '.join(f'{start:.1f}' for start in starts)} s"]  # fmt: skip
        if args.dtype == "float32" and args.autocast is None:
            mine = median(s for turn in times[0] for s in turn)
            line.insert(0, f"floor {team[0].floor_s() / mine:.2f} of ours")
        print(f"    {'; '.join(line)}", flush=True)


def main() -> None:
    args = parse()
    if find_spec("torch") is None and {"PyTorch", "compiled"} & {*args.stacks}:
        raise SystemExit(
            "PyTorch, to compare with, is not installed: "
            "pip install torch --index-url https://download.pytorch.org/whl/cpu"
        )
    load = os.getloadavg()[0]
    print(f"ddpgrad {version('ddpgrad')} against PyTorch {version('torch')}, Python {platform.python_version()}, "
          f"{os.cpu_count()} cores, load {load:.1f} before the run, threads a rank: {args.threads}")  # fmt: skip
    print("ratio: time of ddpgrad / time of the other; below 1 ddpgrad is faster\n", flush=True)
    chosen = [name for name in models.MODELS if name in args.models]
    for ranks in args.ranks:
        for name in chosen:
            compare_steps(name, ranks, args)
    together = [ranks for ranks in args.ranks if ranks > 1]
    if ALL_REDUCE not in args.models or not together:
        return
    if not has_mpi():
        print('plain MPI is not compared, no mpiexec is installed: pip install "ddpgrad[mpich]"')
    for ranks in together:
        with players(["ddpgrad", "PyTorch", *(["MPI"] if has_mpi() else [])], ranks, args.threads) as team:
            for size, count in SIZES.items():
                for player in team:
                    player.prepare(do=ALL_REDUCE, bytes=count)
                report(f"all-reduce {size}, {ranks} ranks", team, rounds(team, args))


if __name__ == "__main__":
    main()
