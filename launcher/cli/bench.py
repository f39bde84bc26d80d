"""`ddprun bench`: how training and collectives scale with ranks, here and, by arithmetic, on a cluster."""

from __future__ import annotations

import argparse
import math
import signal
from collections.abc import Sequence
from pathlib import Path

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure import exit_codes

from .options import Row, row

_DESCRIPTION = """\
Measure how training scales with ranks: throughput, efficiency, what all-reduces cost, the wait for batches and memory; or, with the
word collectives, the latency and bandwidth of collectives by size. Jobs take turns; figures are medians of rounds, with the lowest
and the highest. Writes results.json, table.txt and, with matplotlib, pictures.
"""

_OPTIONS: dict[str, Sequence[Row]] = {
    "what": (
        row("what", nargs="?", choices=("training", "collectives"), default="training", help="(default: training)"),
        row("--ranks", metavar="N,N,...", help="numbers of ranks (default: 1, 2, 4 ... up to the cores or GPUs)"),
        row("--device", choices=("cpu", "cuda"), default="cpu", help="(default: cpu)"),
        row("--vs", action="append", default=[], choices=("torch", "mpi"),
            help="measure PyTorch, too (training: started by torchrun, on this host) or, of collectives, plain MPI"),
        row("--rounds", type=int, default=3, metavar="N", help="of each job (default: 3)"),
        row("-o", "--output", type=Path, metavar="DIR", help="(default: bench-DATE-TIME)"),
    ),
    "how ddprun starts the ranks (see ddprun --help)": (
        *(row(f"--{name}", metavar=name.upper()) for name in ("hosts", "hostfile", "procs")),
        row("--mpi", action="store_true"),
        row("--threads", type=int, default=1, metavar="K", help="of each process, PyTorch's too (default: 1)"),
    ),
    "training": (
        row("--model", default="gpt",
            help="tiny_mlp, mlp, mnist_cnn, resnet18_cifar, resnet50, gpt, lstm, or PATH:FUNCTION; the function takes the module torch "
            "and size=, and returns a ddpgrad.launcher.bench.models.Job (default: gpt)"),
        row("--batch", type=int, metavar="N", help="samples of a rank, with --strong of all (default: the model's)"),
        row("--strong", dest="scaling", action="store_const", const="strong", default="weak",
            help="the ranks share --batch (default: each has the batch)"),
        row("--weak", dest="scaling", action="store_const", const="weak", help="the default"),
        row("--workers", type=int, default=0, metavar="N", help="of each rank's DataLoader (default: 0)"),
        row("--seconds", type=float, default=4.0, metavar="S", help="of each round, in about (default: 4)"),
        row("--against", type=Path, metavar="DIR", help="compare with what a run on this machine has written"),
    ),
    "training on a cluster": (
        row("--predict", metavar="SPEC",
            help="what steps would take, such as hosts=128,ranks=8,link=200Gb,intra=nvlink4,latency=20us"),
        row("--from", dest="source", type=Path, metavar="DIR", help="measure nothing, use what a run has written"),
        row("--collectives", type=Path, action="append", default=[], metavar="DIR",
            help="what `ddprun bench collectives` has written, on one host for sums within, or over hosts"),
    ),
    "collectives": (
        row("--ops", metavar="OP,OP,...", help="(default: all_reduce,reduce_scatter,all_gather,all_to_all,broadcast)"),
        row("--kib", metavar="N,N,...", default="4,64,1024,25600", help="sizes (default: %(default)s)"),
        row("--transport", metavar="NAME", help="as init_process_group's backend (default: what ddpgrad chooses)"),
    ),
}  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Run `ddprun bench` with `argv`; returns the exit code."""
    parser = argparse.ArgumentParser(prog="ddprun bench", description=_DESCRIPTION)
    for title, rows in _OPTIONS.items():
        group = parser.add_argument_group(title)
        for names, how in rows:
            group.add_argument(*names, **how)
    given = parser.parse_args(argv)
    others = ("training", "training on a cluster") if given.what == "collectives" else ("collectives",)
    for names, how in (each for title in others for each in _OPTIONS[title]):
        dest = how.get("dest", names[-1].removeprefix("--"))
        if getattr(given, dest) != parser.get_default(dest):
            raise LaunchError(f"{names[0]} says nothing of {given.what}; leave it out")
    _check(given)
    from ..bench import benchmark

    try:
        benchmark.run(given)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return exit_codes.FINISHED


def _check(given: argparse.Namespace) -> None:
    """Raise LaunchError for what does not fit together."""
    if (
        given.rounds < 1
        or given.threads < 1
        or given.workers < 0
        or not 0 < given.seconds < math.inf
        or (given.batch is not None and given.batch < 1)
    ):
        raise LaunchError(
            "--rounds, --threads, --batch and --seconds must be above 0, and --workers not below"
        )
    if "" in (given.hosts, given.hostfile):
        raise LaunchError("--hosts and --hostfile need a value, and got an empty one")
    if given.what == "training" and "mpi" in given.vs:
        raise LaunchError("--vs mpi is for collectives: MPI trains nothing")
    if given.vs and (given.hosts or given.hostfile):
        raise LaunchError("--vs is for one host: torchrun would have to be started on each")
    if given.scaling == "strong" and given.batch is None:
        raise LaunchError("--strong needs --batch, the samples that the ranks share")
    if (given.source or given.collectives) and not given.predict:
        raise LaunchError("--from and --collectives are for --predict")
    for path in (given.source, given.against, *given.collectives):
        if path is not None and not path.is_dir():
            raise LaunchError(f"there is no folder {path}")
