"""Loggers: where the numbers of a run go, a row for a step: metrics.jsonl, TensorBoard, W&B, MLflow, trackio.

log = loggers.start("runs/a", "tensorboard,wandb", settings={"lr": 0.1})    # on all ranks
log.log(step, {"loss": loss, "lr": 0.1})
log.close()
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import operator
import os
import secrets
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, SupportsIndex
from urllib.parse import urlsplit

from ddpgrad.core.missing import nearest
from ddpgrad.distributed.failure import heartbeat
from ddpgrad.distributed.ranks import host

from . import folder_lock

METRICS = "metrics.jsonl"
_SERVER_S = 10.0  # for a connection to a server
_LONGEST_INT = sys.float_info.max_exp - 1  # bits of an int that is surely a float


class Logger(Protocol):
    """One place for numbers. A program's own joins the others by `Loggers.all.append`."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the numbers of a step, by their names."""

    def close(self, failed: bool) -> None:
        """No more will come. failed: whether the run has ended by an error."""


@dataclass(frozen=True)
class Place:
    """Which run, and which rank of it, a logger is for.

    step: the last one that stands, where the run goes on from a checkpoint; None: it begins anew. project: as the libraries
    call what runs belong to; None: what they do without. settings: what is to be noted about the run.
    """

    folder: Path
    rank: int = 0
    alone: bool = True
    """Whether no other rank has such a logger."""
    step: int | None = None
    project: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the run is called."""
        name = self.folder.resolve().name
        return name if self.alone else f"{name}-rank{self.rank}"

    @property
    def group(self) -> str | None:
        """What joins the runs of several ranks."""
        return None if self.alone else self.folder.resolve().name

    def of_rank(self, name: str) -> Path:
        """The path of `name` in the run folder; ranks other than 0 have their own."""
        path = self.folder / name
        return path if self.rank == 0 else path.with_stem(f"{path.stem}-rank{self.rank}")

    def remembered(self, library: str, make: Callable[[], str]) -> tuple[str, bool]:
        """By what `library` knows the run, and whether it goes on: kept in the run folder, or else of `make`."""
        path = self.of_rank(f"{library}.id")
        if self.step is not None and path.exists():
            return path.read_text(), True
        path.write_text(made := make())
        return made, False


class JSONLines:
    """A JSON object a line: what `ddprun report` reads."""

    def __init__(self, place: Place) -> None:
        self._lock = folder_lock.of(place.folder) if place.rank == 0 else None
        path = place.of_rank(METRICS)
        if place.step is None:
            _keep_earlier(path)
        # Steps beyond the one from which the run goes on are made again.
        rows = path.read_bytes().splitlines() if place.step is not None and path.exists() else []
        before = path.with_name(f".{path.name}")
        before.write_bytes(b"".join(row + b"\n" for row in rows if _step_of(row) <= (place.step or 0)))
        before.replace(path)
        self._file = path.open("a")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        try:
            self._file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._file.name) from None

    def close(self, failed: bool) -> None:
        self._file.close()
        self._lock = None


def _keep_earlier(path: Path) -> None:
    """Move the rows of an earlier run out of the way of one that begins anew in its folder."""
    if path.is_file() and path.stat().st_size:
        number = next(n for n in itertools.count(1) if not path.with_name(f"{path.name}.{n}").exists())
        kept = path.rename(path.with_name(f"{path.name}.{number}"))
        warnings.warn(f"{path} has rows of an earlier run; they are kept in {kept}", stacklevel=4)


def _step_of(row: bytes) -> float:
    """The step of a line; infinity for what is no row, such as a line that was cut off."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return float(json.loads(row)["step"])
    return float("inf")


class TensorBoard:
    """Event files in the folder `tensorboard` of the run."""

    def __init__(self, place: Place) -> None:
        from ddpgrad.extras.tensorboard import SummaryWriter

        self._writer = SummaryWriter(place.of_rank("tensorboard"), flush_secs=10)
        if place.step is None:
            self._writer.add_text("settings", "".join(f"    {k}: {v}\n" for k, v in place.settings.items()))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self, failed: bool) -> None:
        self._writer.close()


class WandB:
    """A run of Weights & Biases; where to, its own variables say, such as WANDB_MODE and WANDB_PROJECT."""

    def __init__(self, place: Place) -> None:
        wandb = import_module("wandb")
        ident, goes_on = place.remembered("wandb", lambda: secrets.token_hex(4))
        self._run = wandb.init(
            project=place.project,
            name=place.name,
            group=place.group,
            dir=place.folder,
            config=dict(place.settings),
            id=ident,
            resume="allow" if goes_on else None,
            reinit="create_new",  # a process may host several ranks
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class MLflow:
    """A run of MLflow; where to, its own variables say, such as MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME."""

    def __init__(self, place: Place) -> None:
        self._mlflow = mlflow = import_module("mlflow")
        _check_server(str(mlflow.get_tracking_uri()))
        if place.project is not None:
            mlflow.set_experiment(place.project)
        tags = {"group": place.group} if place.group else None
        self._id, goes_on = place.remembered(
            "mlflow", lambda: mlflow.start_run(run_name=place.name, tags=tags).info.run_id
        )
        if goes_on:
            mlflow.start_run(run_id=self._id)
        elif place.settings:
            mlflow.log_params(dict(place.settings), run_id=self._id)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(values), step=step, run_id=self._id)

    def close(self, failed: bool) -> None:
        self._mlflow.end_run("FAILED" if failed else "FINISHED")


def _check_server(uri: str) -> None:
    """Raise ConnectionError if nobody listens at `uri`, which MLflow itself finds out after minutes."""
    from urllib.request import getproxies, proxy_bypass  # 14 ms

    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        return  # a store in files, or in a database
    if parts.scheme in getproxies() and not proxy_bypass(parts.hostname):
        return
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname, port), _SERVER_S).close()
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"mlflow: no server answers at {parts.scheme}://{parts.netloc.rpartition('@')[2]} ({error}); "
            "start it, or name another in MLFLOW_TRACKING_URI"
        ) from None


class Trackio:
    """A run of trackio, in the folder that TRACKIO_DIR names or its own."""

    def __init__(self, place: Place) -> None:
        self._run = import_module("trackio").init(
            place.project or "ddpgrad",
            name=place.name,
            group=place.group,
            config={name: str(value) for name, value in place.settings.items()},
            resume="never" if place.step is None else "allow",
            embed=False,
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self, failed: bool) -> None:
        self._run.finish()


LOGGERS: dict[str, Callable[[Place], Logger]] = {
    "jsonl": JSONLines,
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
    "trackio": Trackio,
}
"""By the names that `start` takes."""
_PACKAGED = ("wandb", "mlflow", "trackio")
"""Those that need a package of that name, which the extra of that name brings."""


class Loggers:
    """The loggers of this rank; all calls are for all ranks, and those without a logger do nothing."""

    def __init__(self, all: Sequence[Logger] = ()) -> None:
        self.all = list(all)
        self._closed = False

    def log(self, step: SupportsIndex, values: Mapping[str, Any]) -> None:
        """Log the numbers of a step, or tensors of one element, by their names. `ddprun --metrics` and `top` show the latest.

        TypeError for what is no number, ValueError for one that no float can be, and after `close`.
        """
        if self._closed:
            raise ValueError(f"log: step {step} comes after close()")
        if self.all:
            number, numbers = _step(step), dict(_numbers(values))
            heartbeat.report(number, numbers)
            for logger in self.all:
                logger.log(number, numbers)

    def close(self, failed: bool = False) -> None:
        """Close all, whatever happens to one. failed: whether the run has ended by an error."""
        self._closed = True
        with contextlib.ExitStack() as closing:
            while self.all:
                closing.callback(self.all.pop(0).close, failed)

    def __enter__(self) -> Loggers:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(failed=kind is not None)


def _step(step: Any) -> int:
    try:
        return operator.index(step)
    except TypeError:
        raise TypeError(f"log: the step must be a whole number, got {step!r}") from None


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if not isinstance(name, str) or name == "step":
            raise ValueError(f"log: numbers have names, which are texts other than 'step', got {name!r}")
        number = value.item() if hasattr(value, "item") else value
        if not isinstance(number, (int, float)):
            raise TypeError(f"log: {name} must be a number or a tensor of one element, got {value!r}")
        if isinstance(number, int) and number.bit_length() > _LONGEST_INT:
            raise ValueError(
                f"log: {name} has {number.bit_length()} bits; at most {_LONGEST_INT} fit a float"
            )
        yield name, number


def chosen(names: str) -> dict[str, bool]:
    """The loggers in 'wandb,tensorboard:all', each with whether all ranks have one, and metrics.jsonl in any case.

    ValueError for an unknown name; ModuleNotFoundError, which names the extra, where the package is not installed.
    """
    found = {"jsonl": False}
    for part in filter(None, names.split(",")):
        name, colon, ranks = part.strip().partition(":")
        if name not in LOGGERS or ranks != ("all" if colon else ""):
            raise ValueError(
                f"{part!r} is no logger{nearest(name, LOGGERS)}; there are {', '.join(LOGGERS)}, and NAME:all for all ranks"
            )
        if name in _PACKAGED and ((spec := find_spec(name)) is None or spec.origin is None):
            raise ModuleNotFoundError(
                f'the logger {name} needs the package {name}: pip install "ddpgrad[{name}]"', name=name
            )
        found[name] = bool(colon)
    return found


def add_option(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the option --log, whose value `start` takes."""

    def names(text: str) -> str:
        try:
            chosen(text)
        except (ValueError, ModuleNotFoundError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    parser.add_argument(
        "--log", type=names, default="", metavar="NAME,...",
        help=f"where numbers go besides {METRICS}: {', '.join(list(LOGGERS)[1:])}; NAME:all for a run of each rank",
    )  # fmt: skip


def start(
    folder: str | os.PathLike[str],
    names: str = "",
    *,
    step: int | None = None,
    project: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Loggers:
    """Begin to log the run in `folder`, which is made if need be: to metrics.jsonl there, and to the loggers in `names`.

    Call it on all ranks, after they have met; rank 0 logs, and of `NAME:all` every rank. `step`, `project`, `settings`: see
    `Place`. Raises what `chosen` raises, OSError where the folder cannot be written to or a server does not answer, and
    CheckpointError where another job writes into it.
    """
    wanted, rank = chosen(names), host.current().rank
    Path(folder).mkdir(parents=True, exist_ok=True)
    place = {"rank": rank, "step": step, "project": project, "settings": settings or {}}
    made: list[Logger] = []
    try:
        for name, everywhere in wanted.items():
            if everywhere or rank == 0:
                made.append(LOGGERS[name](Place(Path(folder), alone=not everywhere, **place)))
    except BaseException:
        for logger in made:
            logger.close(failed=True)
        raise
    return Loggers(made)
