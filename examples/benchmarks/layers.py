"""Compare one training step, forward and backward, of every layer family, and derivatives by `torch.func`, with PyTorch's.

    python examples/benchmarks/layers.py                    # everything, some minutes
    python examples/benchmarks/layers.py --quick            # a rough look
    python examples/benchmarks/layers.py --only LSTM Conv   # the names that hold one of these
    python examples/benchmarks/layers.py --dtype bfloat16 --threads 2

Each stack has a process, of one thread unless you say more. They take turns, so that a machine that is slow for a
while is slow for both; a figure is the ratio of the medians over all turns, and in brackets the
lowest and highest ratio of a single round. What is above 2 is named again at the end.
"""

import argparse
from importlib.metadata import version
from importlib.util import find_spec

from layer_steps import STEPS
from players import players
from vs_torch import DTYPES, report, rounds

SLOW = 2.0


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument(
        "--only", nargs="+", default=[""], metavar="NAME", help="steps whose name holds one of these"
    )
    p.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help="of all tensors (default: %(default)s)")
    p.add_argument("--threads", type=int, default=1, help="of each stack (default: %(default)s)")
    p.add_argument("--rounds", type=int, default=8, help="turns of each stack (default: %(default)s)")
    p.add_argument("--steps", type=int, help="repetitions in a turn (default: as many as fill half a second)")
    p.add_argument("--quick", action="store_true", help="3 rounds of shorter turns")
    args = p.parse_args()
    if args.rounds < 1 or (args.steps is not None and args.steps < 1):
        p.error("--rounds and --steps must be at least 1")
    if args.quick:
        args.rounds = min(args.rounds, 3)
    args.chosen = [name for name in STEPS if any(part.lower() in name.lower() for part in args.only)]
    if not args.chosen:
        p.error(f"--only: no step is called so; there are {', '.join(STEPS)}")
    return args


def main() -> None:
    args = parse()
    if find_spec("torch") is None:
        raise SystemExit(
            "PyTorch, to compare with, is not installed: "
            "pip install torch --index-url https://download.pytorch.org/whl/cpu"
        )
    print(
        f"ddpgrad {version('ddpgrad')} against PyTorch {version('torch')}, {args.dtype}, threads: {args.threads}"
    )
    print("ratio: time of ddpgrad / time of PyTorch; below 1 ddpgrad is faster\n", flush=True)
    slow = []
    with players(["ddpgrad", "PyTorch"], 1, args.threads) as team:
        for name in args.chosen:
            order = {"do": "layer", "name": name, "dtype": args.dtype}
            lacking = [player.stack for player in team if not player.prepare(**order)]
            if lacking:
                print(f"{name:<26} not implemented by {' and '.join(lacking)}")
                continue
            ratio = report(name, team, rounds(team, args))
            if ratio > SLOW:
                slow.append(f"{name} {ratio:.2f}")
    print(f"\nabove {SLOW:g}: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main()
