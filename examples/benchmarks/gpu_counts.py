"""What one training step asks of a GPU: launches, products, synchronisations, host copies and peak memory, by part;
and the same step captured as a CUDA graph.

    PYTHONPATH=tests/fake_cuda python examples/benchmarks/gpu_counts.py      # on the stand-in, which counts
    python examples/benchmarks/gpu_counts.py                                 # on a GPU: memory only

Counts do not depend on the sizes, which are small here; peak bytes are those of the small sizes. On a GPU CuPy counts
neither launches nor copies, and '-' stands for what is not known; `nsys profile` counts them.
"""

import argparse
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.launcher.bench import models

JOBS: dict[str, Callable[[], models.Job]] = {
    "MLP": lambda: models.mlp(torch, 64, 96, 16),
    "CNN": lambda: models.mnist_cnn(torch, 8, 4, 0.3, 16),
    "GPT, 2 layers": lambda: models.gpt(torch, 2, 32, 2, 16, 4),
    "GPT, 12 layers": lambda: models.gpt(torch, 12, 48, 3, 16, 4),
}
PARTS = ("forward", "backward", "clip", "optimizer")
COLUMNS = (
    "launches", "graph_launches", "products", "synchronisations", "to_device", "to_host", "allocations", "peak_bytes",
)  # fmt: skip
WARM_UP = 3
"""Steps before the one that is counted: kernels are compiled, and state and tables of addresses are made."""

Counts = dict[str, dict[str, int | None]]


def counted(job: models.Job, autocast: Any = None) -> Counts:
    """The counts of each part of a step, and of the whole step under 'step'; None for what cannot be counted."""
    model = job.model.cuda()
    optimizer = job.optimizer(model.parameters())
    batch = tuple(x.cuda() for x in job.batch(0))
    marks: list[dict[str, int | None]] = []

    def mark() -> None:
        marks.append(_now())

    for step in range(WARM_UP + 1):
        if step == WARM_UP:
            torch.cuda.reset_peak_memory_stats()
            mark()
        with torch.autocast("cuda", autocast, autocast is not None):
            loss = job.loss(model, batch)
        if step == WARM_UP:
            mark()
        loss.backward()
        if step == WARM_UP:
            mark()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if step == WARM_UP:
            mark()
        optimizer.step()
        optimizer.zero_grad()
    mark()
    found = {part: _between(*pair) for part, pair in zip(PARTS, pairwise(marks), strict=True)}
    return found | {"step": _between(marks[0], marks[-1])}


def captured(job: models.Job, autocast: Any = None) -> dict[str, int | None]:
    """The counts of a step that `torch.cuda.captured_step` replays. Its products are within the graph."""
    model = job.model.cuda()
    optimizer = job.optimizer(model.parameters())
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True

    def step(*batch: Any) -> Any:
        with torch.autocast("cuda", autocast, autocast is not None):
            loss = job.loss(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    run = torch.cuda.captured_step(step, warmup=WARM_UP)
    batch = [x.cuda() for x in job.batch(0)]
    for _ in range(WARM_UP + 1):
        run(*batch)
    torch.cuda.reset_peak_memory_stats()
    before = _now()
    run(*batch)
    if run.why_not is not None:
        raise RuntimeError(run.why_not)
    return _between(before, _now()) | {"products": 0 if "fakecuda" in sys.modules else None}


def _now() -> dict[str, int | None]:
    now: dict[str, int | None] = dict.fromkeys(COLUMNS)
    now["peak_bytes"] = torch.cuda.max_memory_allocated()
    if (stand_in := sys.modules.get("fakecuda")) is not None:
        now |= {name: n for name, n in stand_in.counters().items() if name in COLUMNS}
    return now


def _between(before: dict[str, int | None], after: dict[str, int | None]) -> dict[str, int | None]:
    """What was counted from one mark to another; of the peak, what was reached by then."""
    return {
        name: now if name == "peak_bytes" or now is None else now - (before[name] or 0)
        for name, now in after.items()
    }


def main() -> None:
    """Print a table for each job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--autocast", choices=["float16", "bfloat16"])
    args = parser.parse_args()
    for name in args.jobs:
        autocast = args.autocast and getattr(torch, args.autocast)
        counts = counted(JOBS[name](), autocast) | {"captured step": captured(JOBS[name](), autocast)}
        print(f"{name:<16}" + "".join(f"{column:>17}" for column in COLUMNS))
        for part, row in counts.items():
            shown = ("-" if n is None else f"{n:,}" for n in (row[column] for column in COLUMNS))
            print(f"  {part:<14}" + "".join(f"{text:>17}" for text in shown), flush=True)


if __name__ == "__main__":
    main()
