"""`ddprun top`: shows the ranks of a job that runs."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure import exit_codes

from ..job import control
from ..job.status import Status

_HEADS = (
    "rank", "host", "pid", "state", "step", "steps/s", "idle", "waits", "memory", "gpu",
    "waits for, or began last",
)  # fmt: skip
_LEFT = ("host", "state", _HEADS[-1])  # the others are numbers
# The share of time that a rank waits is that of the last so many tables.
_WINDOW = 10
_LONGEST_S = 86400
_CLEAR, _ALTERNATE, _NORMAL = "\x1b[H\x1b[J", "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


def main(argv: Sequence[str]) -> int:
    """Run `ddprun top` with `argv`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="ddprun top",
        description="Show the ranks of a job that runs on this host, or was started here, until it ends or Ctrl-C: the step, steps a "
        "second, how long ago it went on, the share of time that its process waits for others, and memory. Where the "
        "output is no terminal, a table follows the other.",
    )
    parser.add_argument("pid", type=int, nargs="?", metavar="PID",
                        help="the process number of its ddprun (default: the only one of yours)")  # fmt: skip
    parser.add_argument("--once", action="store_true", help="print one table, and end")
    parser.add_argument(
        "--every", type=float, default=1.0, metavar="S", help="seconds between two (default 1)"
    )
    given = parser.parse_args(argv)
    if not 0 < given.every <= _LONGEST_S:
        raise LaunchError(f"--every {given.every:g}: the seconds must be positive, and {_LONGEST_S} at most")
    seen = [control.status(_only_job() if given.pid is None else given.pid)]
    if given.once:
        print("\n".join(table(seen)))
    else:
        with contextlib.suppress(KeyboardInterrupt):
            _watch(seen[0], given.every)
    return exit_codes.FINISHED


def _only_job() -> int:
    found: list[Status] = []
    for pid in control.running():
        with contextlib.suppress(LaunchError):  # another user's, or it has just ended
            found.append(control.status(pid))
    if len(found) == 1:
        return found[0]["pid"]
    if not found:
        raise LaunchError(
            "no ddprun of yours runs a job on this host. (One with --debug, and ranks that mpirun or torchrun has started, "
            "have none that could tell.)"
        )
    jobs = [f"\n  ddprun top {s['pid']}    {_span(s['now'] - s['started'])}  {s['command']}" for s in found]
    raise LaunchError(f"{len(found)} jobs of yours run here; say which:{''.join(jobs)}")


def _watch(first: Status, every: float) -> None:
    seen: deque[Status] = deque([first], maxlen=_WINDOW)
    drawn = sys.stdout.isatty()
    if drawn:
        # The terminal is put back first.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        print(_ALTERNATE, end="")
    try:
        while True:
            if drawn:
                size = shutil.get_terminal_size()
                lines = table(seen)
                if len(lines) > size.lines:
                    shown = size.lines - 1
                    lines[shown:] = [f"… {len(lines) - shown} more lines; a higher terminal shows them"]
                print(_CLEAR + "\n".join(line[: size.columns] for line in lines), end="", flush=True)
            else:
                print("\n".join(table(seen)), flush=True)
            time.sleep(every)
            try:
                seen.append(control.status(first["pid"]))
            except LaunchError:
                break
    finally:
        if drawn:
            print(_NORMAL + "\n".join(table(seen)))
    print(f"the job of ddprun {first['pid']} has ended")


def table(seen: Sequence[Status]) -> list[str]:
    """The lines that show the last status; waiting is counted since the first."""
    first, status = seen[0], seen[-1]
    before = {row["rank"]: row for row in first["ranks"]} if len(seen) > 1 else {}
    elapsed = status["now"] - (first["now"] if before else status["started"])
    rows: list[tuple[str, ...]] = [_HEADS]
    for row in status["ranks"]:
        waited = row["waited"] - (before.get(row["rank"], row)["waited"] if before else 0.0)
        again = any(row["process"] == other["process"] for other in status["ranks"][: row["rank"]])
        rows.append(
            (
                str(row["rank"]),
                row["host"],
                str(row["pid"] or ""),
                row["state"] + (f" ({row['exit']})" if row["exit"] else ""),
                str(row["steps"]),
                "" if row["rate"] is None else f"{row['rate']:.3g}",
                "" if row["progress_at"] is None else _span(status["now"] - row["progress_at"]),
                f"{min(1.0, max(0.0, waited) / elapsed):.0%}" if row["heartbeat_at"] and elapsed > 0 else "",
                *("″" if again and row[key] else _size(row[key]) for key in ("memory", "gpu")),
                row["at"],
            )
        )
    if not any(row["gpu"] for row in status["ranks"]):
        rows = [(*row[:9], *row[10:]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            f"{cell:<{width}}" if head in _LEFT else f"{cell:>{width}}"
            for cell, width, head in zip(row, widths, rows[0], strict=True)
        ).rstrip()
        for row in rows
    ]
    # Names are the program's: a terminal obeys some characters.
    return ["".join(c if c.isprintable() else "?" for c in line) for line in (*_summary(status), *lines)]


def _summary(status: Status) -> list[str]:
    ranks, procs, restarts = status["world_size"], status["processes"], status["restarts"]
    many = f"{ranks} rank{'s' * (ranks != 1)}" + (
        f" in {procs} process{'es' * (procs != 1)}" if procs != ranks else ""
    )
    lines = [
        f"ddprun {status['pid']} on {status['host']}: {status['script']}, {many}, up {_span(status['now'] - status['started'])}, "
        f"{restarts} restart{'s' * (restarts != 1)}"
    ]
    for row in status["ranks"]:
        if row["logged"]:
            numbers = "  ".join(f"{name} {value:.5g}" for name, value in row["logged"].items())
            lines.append(f"logged by rank {row['rank']} at step {row['step']}:  {numbers}")
    return lines


def _span(seconds: float) -> str:
    """'2.1 s', '3:05' or '1:02:03'."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _size(count: Any) -> str:
    if count is None:
        return ""
    return f"{count / 2**30:.1f} GiB" if count >= 10 * 2**30 else f"{count / 2**20:.0f} MiB"
