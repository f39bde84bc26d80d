"""The stacks that are compared: starting the ranks of each, and giving them turns."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

_WORKER = Path(__file__).with_name("worker.py")
_START_S = 90
_END_S = 30
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Player:
    """The ranks of one stack, which work only during their turns. started_s: until all of them had met."""

    def __init__(self, stack: str, ranks: int, lines: list[socket.socket], began: float) -> None:
        self.stack, self.ranks = stack, ranks
        self._lines = lines
        self._ends = [(line.makefile("r"), line.makefile("w")) for line in lines]
        said = self._answers()
        if any(answer["ranks"] != ranks for answer in said):
            raise SystemExit(f"{stack}: expected {ranks} ranks that found each other, got {said}")
        self.started_s = perf_counter() - began

    def prepare(self, **order: Any) -> bool:
        """Let every rank build what the next turns are about: do='model', 'layer' or 'all_reduce'.

        False where a layer is not implemented for the dtype.
        """
        return all(answer["ready"] for answer in self._tell(order))

    def turn(self, count: int, reduces: bool = True) -> list[float]:
        """Seconds of each of `count` repetitions, as the slowest rank saw them. reduces: steps of models average gradients."""
        answers = self._tell({"do": "turn", "count": count, "reduces": reduces})
        return [max(times) for times in zip(*(a["seconds"] for a in answers), strict=True)]

    def peak_bytes(self) -> int:
        """Of the rank that had the most in memory."""
        return max(answer["bytes"] for answer in self._tell({"do": "peak"}))

    def floor_s(self) -> float:
        """What a step of the prepared model takes at least (`floor.py`), of the rank that needs longest."""
        return max(answer["floor_s"] for answer in self._tell({"do": "floor"}))

    def close(self) -> None:
        """Let the ranks end."""
        for line in self._lines:
            line.shutdown(socket.SHUT_RDWR)

    def _tell(self, order: dict[str, Any]) -> list[dict[str, Any]]:
        for _, to in self._ends:
            to.write(json.dumps(order) + "\n")
            to.flush()
        return self._answers()

    def _answers(self) -> list[dict[str, Any]]:
        lines = [answers.readline() for answers, _ in self._ends]
        if not all(lines):
            raise SystemExit(f"{self.stack}: a rank ended early; what it said is above")
        return [json.loads(text) for text in lines]


def has_mpi() -> bool:
    """Whether plain MPI can be compared: an mpiexec beside this Python or on PATH."""
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    return (beside or shutil.which("mpiexec")) is not None


@contextmanager
def players(stacks: list[str], ranks: int, threads: int = 1) -> Iterator[list[Player]]:
    """The stacks, each on `ranks` processes of `threads` threads that live until the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        processes: list[subprocess.Popen[bytes]] = []
        try:
            team: list[Player] = []
            for stack in stacks:
                address, began = f"{folder}/{stack}", perf_counter()
                with socket.socket(socket.AF_UNIX) as server:
                    server.bind(address)
                    server.listen()
                    server.settimeout(_START_S)
                    processes += _start(stack, ranks, threads, address, folder)
                    team.append(Player(stack, ranks, [_accept(server, stack) for _ in range(ranks)], began))
            yield team
            for player in team:
                player.close()
            for process in processes:
                process.wait(_END_S)
        finally:
            for process in processes:
                process.terminate()  # nothing happens to those that have ended
            for process in processes:
                process.wait()


def _accept(server: socket.socket, stack: str) -> socket.socket:
    try:
        return server.accept()[0]
    except TimeoutError:
        raise SystemExit(
            f"{stack}: its ranks did not start within {_START_S} s; what they said is above"
        ) from None


def _start(stack: str, ranks: int, threads: int, address: str, folder: str) -> list[subprocess.Popen[bytes]]:
    """ddpgrad and MPI through ddprun, as their users do; PyTorch's ranks on their own."""
    worker = [str(_WORKER), stack, address]
    meeting = f"{folder}/meeting"
    if stack in ("PyTorch", "compiled"):
        commands = [[*worker, str(rank), str(ranks), meeting] for rank in range(ranks)]
    else:
        launcher = ["-m", "ddpgrad.launcher", "-n", str(ranks), *(["--mpi"] if stack == "MPI" else [])]
        commands = [[*launcher, *worker, "0", str(ranks), meeting]]
    environment = {**os.environ, **dict.fromkeys(_THREADS, str(threads))}
    return [
        subprocess.Popen([sys.executable, *command], env=environment, stdin=subprocess.DEVNULL)
        for command in commands
    ]
