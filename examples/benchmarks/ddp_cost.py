"""What DistributedDataParallel adds to a step: with its all-reduces, less the same step of the same ranks under `no_sync`.

    python examples/benchmarks/ddp_cost.py --models mlp gpt

Here and in PyTorch over Gloo, in one run and in turns. Both steps run on the same processes, so that what ranks take from
each other by running side by side is in both, and is no cost of the reduction.
"""

import argparse
from statistics import median

from players import players
from vs_torch import duration

from ddpgrad.launcher.bench import models


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", choices=[*models.MODELS], default=["mlp", "gpt"])
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rounds", type=int, default=10, help="turns of each kind of step (default: %(default)s)")
    p.add_argument("--steps", type=int, default=6, help="steps in a turn (default: %(default)s)")
    args = p.parse_args()
    with players(["ddpgrad", "PyTorch"], args.ranks) as team:
        for name in args.models:
            for player in team:
                player.prepare(do="model", name=name, autocast=None)
                player.turn(3), player.turn(3, reduces=False)
            costs: dict[str, list[float]] = {player.stack: [] for player in team}
            steps: dict[str, list[float]] = {player.stack: [] for player in team}
            for turn in range(args.rounds):
                for player in team if turn % 2 == 0 else team[::-1]:
                    times = {
                        reduces: median(player.turn(args.steps, reduces=reduces))
                        for reduces in ((True, False) if turn % 4 < 2 else (False, True))
                    }
                    costs[player.stack].append(times[True] - times[False])
                    steps[player.stack].append(times[True])
            for stack, cost in costs.items():
                print(
                    f"{name}, {args.ranks} ranks, {stack:8} step {duration(median(steps[stack])):>8}, of which the reduction "
                    f"{1e3 * median(cost):.2f} ms ({1e3 * min(cost):.2f} to {1e3 * max(cost):.2f})"
                )
            ratio = median(costs["ddpgrad"]) / median(costs["PyTorch"])
            print(f"{name}: ratio of the costs {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
