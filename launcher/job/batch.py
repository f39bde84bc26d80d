"""A job that waits in Slurm's queue: its batch file, its submission, and its way from there to its end.

The batch file runs ddprun in the allocation, which starts the ranks by srun (slurm.py). Slurm's signal before the time
limit, and at a preemption, goes to the batch file's shell (`--signal=B:USR1@60`), which passes it on to ddprun; the ranks
save a checkpoint (preemption.py), and the shell puts the job back into the queue if that is wanted.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure import exit_codes

SEED = "{seed}"
"""In arguments: the number of a job in an array."""

# The ranks have 30 s to save (attempt.py), and Slurm may send its signal late.
_SIGNAL = "B:USR1@60"
_POLL_S = 1.0
# The output of a host may come late to a network file system.
_SETTLE_S = 1.0
_PENDING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING", "SPECIAL_EXIT")
_RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT")
_NAME = re.compile("[a-zA-Z0-9-]+")
_FIELD = re.compile(r"(?:^| )(\w+)=(\S*)")

_BODY = """\

again={again}
passed_on=
trap 'passed_on=1; kill -USR1 "$ddprun"' USR1
# Who cancels the job does not want it again.
trap 'passed_on=1; again=; kill -TERM "$ddprun"' TERM
{command} &
ddprun=$!
# A signal interrupts the wait.
while wait "$ddprun"; code=$?; [ -n "$passed_on" ]; do passed_on=; done
if [ "$code" = {preempted} ] && [ -n "$again" ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
"""


def script(options: Mapping[str, str | None], command: Sequence[str], *, requeue: bool) -> str:
    """The text of a batch file that runs `command` under these options of sbatch; None: one without a value.

    LaunchError for an option that would not stay on its line: bash would run the rest of it.
    """
    head = ["#!/bin/bash"]
    for name, value in {**options, "open-mode": "append", "signal": options.get("signal", _SIGNAL)}.items():
        if not (_NAME.fullmatch(name) and (value or "").isprintable()):
            raise LaunchError(
                f"sbatch's option {name}={value!r}: a name has letters, digits and hyphens, and a value no line breaks or other "
                "control characters"
            )
        head.append(f"#SBATCH --{name}" + ("" if value is None else f"={shlex.quote(value)}"))
    words = " ".join(_word(argument, "array" in options) for argument in command)
    body = _BODY.format(command=words, again="1" if requeue else "", preempted=exit_codes.PREEMPTED)
    return "\n".join(head) + "\n" + body


def _word(argument: str, of_array: bool) -> str:
    """`argument` for the shell; in the jobs of an array with the number of the job in place of {seed}."""
    if not of_array:
        return shlex.quote(argument)
    parts = (shlex.quote(part) if part else "" for part in argument.split(SEED))
    return '"$SLURM_ARRAY_TASK_ID"'.join(parts) or "''"


def submit(text: str) -> str:
    """Submit a batch file, and return the job's number; LaunchError where Slurm refuses it."""
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        raise LaunchError("--slurm needs sbatch, which is not on PATH: log in to a host of the cluster")
    done = subprocess.run([sbatch, "--parsable"], input=text, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise LaunchError(f"sbatch has refused the job: {done.stderr.strip()}")
    return done.stdout.strip().partition(";")[0]


@dataclass
class Task:
    """A job or, of an array, one of its jobs, as Slurm knows it."""

    number: str
    """Its number in the array; '' for a job that is none."""
    state: str
    reason: str
    hosts: str
    code: int
    """The exit code, once it has ended: 128 + N after signal N, and 1 where Slurm has ended it without one."""

    @property
    def ended(self) -> bool:
        return self.state not in (*_PENDING, *_RUNNING)

    def __str__(self) -> str:
        words = self.state.lower().replace("_", " ")
        if self.state in _PENDING and self.reason not in ("", "None"):
            words += f" ({self.reason})"
        if self.state in _RUNNING and self.hosts:
            words += f" on {self.hosts}"
        return words + (f", exit code {self.code}" if self.ended and self.code else "")


def read_tasks(said: str) -> list[Task]:
    """What `scontrol --oneliner show job` says. The jobs of an array that have not begun may be one line together."""
    tasks = []
    for line in said.splitlines():
        found = dict(_FIELD.findall(line))
        if "JobState" in found:
            code, _, number = found.get("ExitCode", "0:0").partition(":")
            status = 128 + int(number) if int(number or 0) else int(code)
            state = found["JobState"]
            hosts = found.get("NodeList", "").replace("(null)", "")
            if state != "COMPLETED" and not status:
                status = exit_codes.RANK_FAILED
            tasks.append(Task(found.get("ArrayTaskId", ""), state, found.get("Reason", ""), hosts, status))
    return tasks


class Follower:
    """Shows what becomes of a job: changes of its state on standard error, its output on standard output."""

    def __init__(self, job: str, output: Path) -> None:
        self._job = job
        self._output = output
        self._said: dict[str, str] = {}
        self._files: dict[str, BinaryIO] = {}
        self._begun: dict[str, bytes] = {}
        self._asked_to_end = False
        self._unreachable = False

    def run(self) -> int:
        """Follow the job to its end. Returns its exit code; of an array, the highest."""
        tasks: list[Task] = []
        while True:
            try:
                tasks = self._look() or tasks
                self._show(tasks)
                if tasks and all(task.ended for task in tasks):
                    time.sleep(_SETTLE_S)
                    self._show(tasks, whole=True)
                    if self._asked_to_end and any(task.state == "CANCELLED" for task in tasks):
                        return 128 + signal.SIGINT
                    return max(task.code for task in tasks)
                time.sleep(_POLL_S)
            except KeyboardInterrupt:
                self._end()

    def _look(self) -> list[Task]:
        asked = _slurm("scontrol", "--oneliner", "show", "job", self._job)
        if asked.returncode == 0:
            self._unreachable = False
            return read_tasks(asked.stdout)
        problem = (asked.stderr + asked.stdout).strip()
        if "Invalid job id" in problem:
            raise LaunchError(
                f"Slurm has forgotten job {self._job} before its end was seen; `sacct -j {self._job}` may know how it ended"
            )
        if not self._unreachable:
            self._say(f"Slurm does not answer ({problem}); the job goes on, and so does the wait")
        self._unreachable = True
        return []

    def _show(self, tasks: Sequence[Task], *, whole: bool = False) -> None:
        for task in tasks:
            self._show_output(task.number, whole=whole)
            if self._said.get(task.number) != str(task):
                self._said[task.number] = str(task)
                self._say(f"{f'seed {task.number}: ' if task.number else ''}{task}")

    def _show_output(self, number: str, *, whole: bool) -> None:
        file = self._files.get(number)
        if file is None:
            path = self._output.with_name(self._output.name.replace("%a", number))
            if not path.exists():
                return
            file = self._files[number] = path.open("rb")
        data = self._begun.get(number, b"") + file.read()
        end = len(data) if whole else data.rfind(b"\n") + 1
        self._begun[number] = data[end:]
        mark = f"[seed {number}] ".encode() if number else b""
        sys.stdout.buffer.write(b"".join(mark + line for line in data[:end].splitlines(keepends=True)))
        sys.stdout.buffer.flush()

    def _end(self) -> None:
        """Let the ranks save and end; at the second time, cancel the job."""
        if self._asked_to_end:
            _slurm("scancel", self._job)
            return
        self._asked_to_end = True
        self._say("interrupted; the ranks have 30 s to save and end. Ctrl-C again cancels the job")
        _slurm("scancel", "--state=PENDING", self._job)
        _slurm("scancel", "--batch", "--signal=TERM", "--state=RUNNING", self._job)

    def _say(self, text: str) -> None:
        print(f"ddprun: job {self._job}: {text}", file=sys.stderr, flush=True)


def _slurm(*command: str) -> subprocess.CompletedProcess[str]:
    """A command of Slurm that has ended. In a group of its own: Ctrl-C is for this process."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, process_group=0
    )
