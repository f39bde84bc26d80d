"""Starts the ranks of a job as Kubeflow, SSH or a shell does: each with its own variables, and nobody watches them.

python started_by_hand.py RANKS SCRIPT [ARGUMENTS ...]        ends with 1 if one of them does not end well
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LIMIT_S = 600
_PIPES: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)

MEETING = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def free_port() -> int:
    """A port of this host that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(
    variables: Mapping[str, object], command: Sequence[str | Path], **how: Any
) -> subprocess.Popen[str]:
    """One process with these environment variables, and none of another job's."""
    env = {name: value for name, value in os.environ.items() if name not in MEETING}
    env |= {"OMP_NUM_THREADS": "1", **{name: str(value) for name, value in variables.items()}}
    return subprocess.Popen([str(word) for word in command], env=env, text=True, **how)


class Program:
    """A program of the test, and its runs, one process for each set of variables."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started: list[subprocess.Popen[str]] = []
        self.meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}

    def write(self, text: str) -> None:
        """The program is `text`, after what every program imports."""
        self.path.write_text(
            f"import json, os, sys\nimport ddpgrad as torch\nimport ddpgrad.distributed as dist\n{text}"
        )

    def start(
        self, variables: Mapping[str, object], before: Sequence[str] = (), options: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """One process of it. before: a command that runs it; options: of Python."""
        command = [*before, sys.executable, *options, self.path]
        self.started.append(start({**self.meeting, **variables}, command, **_PIPES))
        return self.started[-1]

    def close(self) -> None:
        """End what has not ended."""
        for process in self.started:
            process.kill()
            process.communicate()

    def ranks(self, count: int, **variables: object) -> list[list[object]]:
        """What `count` ranks print, one line of JSON each; all must end well."""
        each = [{"RANK": rank, "WORLD_SIZE": count, **variables} for rank in range(count)]
        return [json.loads(out) for out, _ in ended([self.start(one) for one in each])]


def ended(started: Sequence[subprocess.Popen[str]], code: int = 0) -> list[tuple[str, str]]:
    """What processes wrote that end with `code`."""
    said = [process.communicate(timeout=LIMIT_S) for process in started]
    for process, (_, err) in zip(started, said, strict=True):
        assert process.returncode == code, err
    return said


def main(ranks: int, *command: str) -> int:
    meeting = {"WORLD_SIZE": ranks, "MASTER_ADDR": "localhost", "MASTER_PORT": free_port()}
    started = [start({**meeting, "RANK": rank}, [sys.executable, *command]) for rank in range(ranks)]
    codes = [process.wait() for process in started]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
