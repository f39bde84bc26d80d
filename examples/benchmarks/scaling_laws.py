"""How the time of a step grows: with parameters, batch, layers, buckets, logical ranks and processes.

    python examples/benchmarks/scaling_laws.py -o docs/scaling-laws.svg       # some minutes; the picture needs matplotlib
    python examples/benchmarks/scaling_laws.py --sweeps layers ranks --quick

Models are stacks of linear layers and ReLUs, trained by SGD in DistributedDataParallel, one thread a process. The points of a sweep
take turns, so that a machine that is slow for a while is slow for all; figures are medians of turns. `captured` is the same step in
`captured_step`. Below each sweep: what one more layer, rank or million of parameters costs, by least squares over its points.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

Points = dict[str, list[float]]  # seconds of a step by curve, for each value


def model_of(width: int, layers: int) -> Any:
    from ddpgrad import nn

    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*parts)


def step_of(width: int, layers: int, batch: int, captured: bool = False, **options: Any) -> Callable[[], Any]:
    """A training step of such a model."""
    import ddpgrad as torch
    from ddpgrad.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = DistributedDataParallel(model_of(width, layers), check_replicas_every=0, **options)
    optimizer, x = torch.optim.SGD(model.parameters(), 0.01), torch.randn(batch, width)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = torch.captured_step(step) if captured else step
    return lambda: run(x)


def measured(steps: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """The median seconds of each step of all ranks, by turns of several in a row."""
    import ddpgrad.distributed as dist

    times: list[list[float]] = [[] for _ in steps]
    for turn in range(1 + rounds):
        for step, found in zip(steps, times, strict=True):
            step()  # the one before may have been of a model that fills the caches
            dist.barrier()  # ranks of one process leave it by turns: one step alone would be some of them
            began = perf_counter()
            for _ in range(_ROW):
                step()
            dist.barrier()
            if turn:  # in the first one kernels are compiled, memory is laid out, steps are captured
                found.append((perf_counter() - began) / _ROW)
    return [median(found) for found in times]


_ROW = 8
WIDTHS, BATCHES, LAYERS = (
    [32, 64, 128, 256, 512, 1024, 2048],
    [1, 4, 16, 64, 256, 1024],
    [2, 4, 8, 16, 32, 64, 128],
)
RANKS, PROCESSES, CAPS = [1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8], [0.125, 0.5, 1.0, 4.0, 16.0, 64.0]


def inside(what: str, rounds: int) -> None:
    """What the ranks do: a sweep within one job, or one point of a sweep over jobs."""
    import ddpgrad.distributed as dist

    dist.init_process_group()
    shapes = {
        "parameters": [(width, 4, 32) for width in WIDTHS],
        "batch": [(256, 4, batch) for batch in BATCHES],
        "layers": [(16, layers, 16) for layers in LAYERS],
        "point": [(32, 12, 32)],
    }
    if what == "buckets":
        found = {"eager": measured([step_of(1024, 16, 32, bucket_cap_mb=cap) for cap in CAPS], rounds)}
    else:
        eager = [step_of(*shape) for shape in shapes[what]]
        both = measured([*eager, *[step_of(*shape, captured=True) for shape in shapes[what]]], rounds)
        found = {"eager": both[: len(eager)], "captured": both[len(eager) :]}
    if dist.get_rank() == 0:
        print("found", json.dumps(found), flush=True)


def job(what: str, rounds: int, ranks: int, processes: int) -> Points:
    """Run `inside` on so many ranks; what rank 0 found."""
    command = [sys.executable, "-m", "ddpgrad.launcher", "-n", str(ranks), "--procs", str(processes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, __file__, "--inside", what, "--rounds", str(rounds)],
        env=environment,
        capture_output=True,
        text=True,
    )
    lines = [line.partition("found ")[2] for line in done.stdout.splitlines() if "found {" in line]
    if done.returncode or not lines:
        raise SystemExit(f"{what} on {ranks} ranks ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(lines[0])


def over(jobs: Sequence[tuple[int, int]], rounds: int) -> Points:
    """A sweep over (ranks, processes)."""
    points = [job("point", rounds, ranks, processes) for ranks, processes in jobs]
    return {curve: [point[curve][0] for point in points] for curve in ("eager", "captured")}


# name -> what the values are, the values, what one more is counted in, and how the sweep is run with so many rounds.
SWEEPS: dict[str, tuple[str, list[float], float, Callable[[int], Points]]] = {
    "parameters": ("parameters (4 layers, batch of 32)", [4.0 * w * (w + 1) for w in WIDTHS], 1e6,
                   lambda rounds: job("parameters", rounds, 1, 1)),
    "batch": ("samples (4 layers of 256)", [float(b) for b in BATCHES], 1, lambda rounds: job("batch", rounds, 1, 1)),
    "layers": ("layers of 16", [float(n) for n in LAYERS], 1, lambda rounds: job("layers", rounds, 1, 1)),
    "ranks": ("logical ranks of one process (12 layers of 32)", [float(n) for n in RANKS], 1,
              lambda rounds: over([(n, 1) for n in RANKS], rounds)),
    "processes": ("processes of 8 ranks (12 layers of 32)", [float(n) for n in PROCESSES], 1,
                  lambda rounds: over([(8, n) for n in PROCESSES], rounds)),
    "buckets": ("MiB of a bucket (of 64 MiB, 2 processes)", CAPS, 1, lambda rounds: job("buckets", rounds, 2, 2)),
}  # fmt: skip


def slope(values: Sequence[float], seconds: Sequence[float], unit: float) -> tuple[float, float]:
    """Seconds for one more unit, and for none, by least squares of the relative error."""
    x, y = np.asarray(values) / unit, np.asarray(seconds)
    (per, rest), *_ = np.linalg.lstsq(
        np.stack([x, np.ones_like(x)], 1) / y[:, None], np.ones_like(y), rcond=None
    )
    return float(per), float(rest)


def draw(found: dict[str, Points], path: Path) -> None:
    """A panel for each sweep."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"], matplotlib.rcParams["svg.hashsalt"] = "none", "scaling"
    from matplotlib import pyplot, ticker

    figure, panels = pyplot.subplots(2, 3, figsize=(12, 6.5), layout="constrained")
    for panel, (name, points) in zip(panels.flat, found.items(), strict=False):
        said, values, _, _ = SWEEPS[name]
        for curve, seconds in points.items():
            panel.loglog(values, [1e3 * s for s in seconds], marker="o", label=curve)
        panel.set(xlabel=said, ylabel="ms a step")
        panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.legend()
    figure.savefig(path, metadata={"Date": None})
    path.write_text(" ".join(path.read_text("utf-8").split()) + "\n", "utf-8")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument(
        "--sweeps",
        nargs="+",
        choices=[*SWEEPS],
        default=[*SWEEPS],
        metavar="NAME",
        help=f"of {', '.join(SWEEPS)}",
    )
    p.add_argument(
        "--rounds", type=int, default=8, help="turns of eight steps of each point (default: %(default)s)"
    )
    p.add_argument("--quick", action="store_true", help="two turns of each point")
    p.add_argument("-o", "--output", type=Path, help="where to draw the curves, as an SVG")
    p.add_argument("--inside", help=argparse.SUPPRESS)
    args = p.parse_args()
    rounds = 2 if args.quick else args.rounds
    if args.inside:
        inside(args.inside, rounds)
        return
    found: dict[str, Points] = {}
    for name in args.sweeps:
        said, values, unit, run = SWEEPS[name]
        points = found[name] = run(rounds)
        print(f"\n{said}\n" + "".join(f"{value:>12g}" for value in values))
        for curve, seconds in points.items():
            print("".join(f"{1e3 * s:>12.4g}" for s in seconds), f"  ms, {curve}")
            if name not in ("buckets", "processes"):
                per, rest = slope(values, seconds, unit)
                print(
                    f"  {1e6 * per:.3g} us for one more{f' of {unit:g}' * (unit > 1)}, {1e6 * rest:.3g} us besides",
                    flush=True,
                )
    if args.output is not None:
        draw(found, args.output)


if __name__ == "__main__":
    main()
