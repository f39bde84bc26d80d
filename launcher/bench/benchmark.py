"""Carries out a benchmark: its jobs in turns, and what is said of their figures."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddpgrad import cuda
from ddpgrad.core.errors import LaunchError

from ..job.plan import usable_cores
from . import cluster, jobs, models, plots, results
from .collectives import OPS, Collectives, Row
from .training import Training

_KIB = 1024
_ROUNDS_OF_A_JOB = 5


def run(given: argparse.Namespace) -> None:
    """Do what the options say; LaunchError if that cannot be done, or a job fails."""
    if "torch" in given.vs:
        jobs.check_torch()
    if given.what == "collectives":
        _collectives(given)
    elif given.source is not None:
        print(_forecast(given, results.read(given.source, "training")[1]))
    else:
        _training(given)


def _numbers(name: str, text: str, least: int = 1) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) >= least for part in parts):
        raise LaunchError(f"{name} {text}: give whole numbers of {least} or more, such as 1,2,4")
    return sorted({int(part) for part in parts})


def _ranks(given: argparse.Namespace, least: int) -> list[int]:
    if given.ranks is not None:
        return _numbers("--ranks", given.ranks, least)
    if given.hosts or given.hostfile:
        raise LaunchError("--ranks must be given with --hosts and --hostfile")
    most = cuda.device_count() if given.device == "cuda" else usable_cores()
    if given.device == "cuda" and not most:
        raise LaunchError(
            "--device cuda: there is no GPU here that CuPy finds; `ddprun doctor --gpu` says more"
        )
    found = [1 << n for n in range(max(most, least).bit_length())]
    return [count for count in found if count >= least]


def _options(given: argparse.Namespace, mpi: bool = False) -> tuple[str, ...]:
    named = [word for name in ("hosts", "hostfile", "procs") if (value := getattr(given, name))
             for word in (f"--{name}", value)]  # fmt: skip
    return (*named, "--threads", str(given.threads), *(["--mpi"] if given.mpi or mpi else []))


def _folder(given: argparse.Namespace) -> Path:
    folder = given.output or Path(time.strftime("bench-%Y%m%d-%H%M%S"))
    if (folder / results.FILE).exists():
        raise LaunchError(f"-o {folder}: results are there already; give another folder")
    return folder


def _measured(given: argparse.Namespace, folder: Path, wanted: Sequence[Any], made: Any) -> list[list[Any]]:
    """Of each job the results of its rounds, as `made` makes them; tells how far it is. They will be kept in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[Any, list[Any]] = {job: [] for job in wanted}
    for turn, job in jobs.in_turns(wanted, given.rounds):
        began = time.monotonic()
        found[job].append(made(jobs.run(job)))
        took = time.monotonic() - began
        told = f"round {turn + 1} of {given.rounds}: {job.stack}, ranks: {job.ranks}, {took:.0f} s"
        print(told, file=sys.stderr, flush=True)
    return list(found.values())


def _training(given: argparse.Namespace) -> None:
    if given.predict:
        cluster.parse(given.predict)
    models.named(given.model)
    what = {"kind": "training"} | {
        name: getattr(given, name)
        for name in (
            "model",
            "scaling",
            "device",
            "batch",
            "threads",
            "workers",
            "procs",
            "hosts",
            "hostfile",
        )
    }
    before = results.earlier(given.against, what) if given.against is not None else []
    folder, ranks = _folder(given), _ranks(given, 1)
    wanted = []
    for count in ranks:
        batch = given.batch
        if given.scaling == "strong":
            batch, rest = divmod(batch, count)
            if rest or not batch:
                raise LaunchError(f"--strong: {given.batch} samples cannot be shared by {count} ranks")
        words = ["--model", given.model, "--device", given.device, "--workers", str(given.workers), "--threads", str(given.threads),
                 "--seconds", str(given.seconds), *(["--batch", str(batch)] if batch else [])]  # fmt: skip
        for stack in ("ddpgrad", *given.vs):
            options = _options(given) if stack == "ddpgrad" else ()
            wanted.append(jobs.Job(stack, count, "training", ("--stack", stack, *words), options))
    runs = _measured(given, folder, wanted, lambda told: Training(**told))
    results.write(folder, what, runs)
    found = results.points(runs)
    first = runs[0][0]
    lines = [
        f"{given.model}: {first.parameters:,} parameters, {given.scaling} scaling, {given.device}, {first.machine['processor']}, "
        f"{first.machine['cores']} cores",
        results.training_table(found),
    ]
    if given.against is not None:
        lines.append("\n".join(results.against(given.against, before, runs)))
    if given.predict:
        lines.append(_forecast(given, runs))
    _tell(folder, lines, lambda: plots.training(folder, found, runs))


def _collectives(given: argparse.Namespace) -> None:
    ops = given.ops.split(",") if given.ops else [*OPS]
    for op in ops:
        if op not in OPS:
            raise LaunchError(f"--ops: there is no {op!r}, but {', '.join(OPS)}")
    sizes = [kib * _KIB for kib in _numbers("--kib", given.kib)]
    folder, ranks = _folder(given), _ranks(given, 2)
    words = [
        "--ops",
        *ops,
        "--sizes",
        *map(str, sizes),
        "--rounds",
        str(_ROUNDS_OF_A_JOB),
        "--device",
        given.device,
    ]
    words += ["--transport", given.transport] if given.transport else []
    words += ["--vs", *given.vs] if given.vs else []
    wanted = [
        jobs.Job("ddpgrad", count, "collectives", tuple(words), _options(given, "mpi" in given.vs))
        for count in ranks
    ]

    runs = _measured(given, folder, wanted, lambda told: Collectives.of(**told))
    results.write(folder, {"kind": "collectives", "device": given.device}, runs)
    found = [
        (own[0], [_joined(rounds) for rounds in zip(*(one.rows for one in own), strict=True)]) for own in runs
    ]
    lines = [results.collectives_table(*each) for each in found]
    _tell(folder, lines, lambda: plots.collectives(folder, found))
    wrong = [row for _, rows in found for row in rows if row.wrong]
    if wrong:
        raise LaunchError(
            f"{wrong[0].who}: {wrong[0].op} of {wrong[0].nbytes} bytes had {wrong[0].wrong} wrong elements"
        )


def _joined(rounds: Sequence[Row]) -> Row:
    """The figures of all rounds."""
    seconds = [value for row in rounds for value in row.seconds]
    return replace(rounds[0], seconds=seconds, wrong=sum(row.wrong for row in rounds))


def _tell(folder: Path, lines: Sequence[str], draw: Callable[[], Sequence[Path]]) -> None:
    """Print and keep `lines`, and draw pictures where that can be done."""
    text = "\n\n".join(lines)
    (folder / "table.txt").write_text(text + "\n")
    print(text)
    try:
        drawn = draw()
    except ImportError:
        print('no pictures were drawn: pip install "ddpgrad[plot]" brings matplotlib', file=sys.stderr)
    else:
        print(f"drawn: {', '.join(map(str, drawn))}")
    print(f"results: {folder / results.FILE}")


def _forecast(given: argparse.Namespace, runs: Sequence[Sequence[Any]]) -> str:
    """What `--predict` says."""
    wanted = cluster.parse(given.predict)
    measured = []
    for folder in given.collectives:
        own = [rounds[0] for rounds in results.read(folder, "collectives")[1]]
        if not cluster.uses(wanted, own):
            raise LaunchError(
                f"--collectives {folder}: of no use for {given.predict}. It must hold all-reduces of two sizes or more, over "
                "hosts with one rank each, or on one host with as many ranks as ranks= says, where intra= is not given"
            )
        measured += own
    known = [own[0] for own in runs if own[0].recording is not None]
    if not known:
        raise LaunchError(
            "--predict: no run has recorded when gradients were computed, which ddpgrad does on CPUs"
        )
    near = min(known, key=lambda run: (abs(run.ranks - wanted.ranks), run.ranks))
    inside = cluster.within(wanted, near.device, measured)
    if inside is None:
        raise LaunchError(
            f"--predict: what {wanted.ranks} ranks of a host take for a sum is not known: give intra=RATE, or with --collectives DIR "
            f"what `ddprun bench collectives --ops all_reduce --ranks {wanted.ranks} -o DIR` wrote"
        )
    outside = cluster.between(wanted, measured)
    table = results.forecast_table(list(cluster.forecasts(wanted, near, inside, outside)))
    words = "\n".join(f"  - {line}" for line in cluster.assumptions(wanted, near, inside, outside))
    return f"predicted, weak scaling:\n{table}\nassumed:\n{words}"
