"""Runs a draw: starts its job, sends what is to be sent when the fault has begun, and waits until all has ended."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from campaign_draws import Draw
from campaign_table import BEFORE, MODES
from patience import patience
from running import Ddprun, Result, plain
from training import TRAIN, result

from ddpgrad.launcher.job.mpi import find

HERE = Path(__file__).parent
BY_HAND = HERE.parent / "helpers" / "started_by_hand.py"
MARK = "CAMPAIGN_RUN"


def limit() -> int:
    """Seconds after which a stall is one: the draws beside this one, and all else of the machine, take their time."""
    return 3 * patience()


@dataclass
class Run:
    """What became of a job. seconds: from the fault to the end; fired: the numbers of the faults that came."""

    draw: Draw
    result: Result
    seconds: float
    fired: set[int]
    left: list[str]
    sent: int = 0
    again: Result | None = None


@dataclass
class References:
    """Undisturbed runs, one for each number of ranks: their results and their checkpoints."""

    folder: Path
    results: dict[int, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, ranks: int) -> str:
        with self.lock:
            if ranks not in self.results:
                home = self.folder / f"undisturbed-{ranks}"
                home.mkdir()
                done = Ddprun(home).run("-n", str(ranks), TRAIN)
                assert done.code == 0, done.err
                self.results[ranks] = result(done)
            return self.results[ranks]

    def prepare(self, ranks: int, folder: Path) -> None:
        """Put the checkpoints of steps 1 and 3 into `folder`."""
        self.of(ranks)
        for step in (1, 3):
            name = f"checkpoints/step_{step:08d}"
            shutil.copytree(self.folder / f"undisturbed-{ranks}" / name, folder / name)


def run(draw: Draw, folder: Path, references: References) -> Run:
    """Run `draw` in `folder`, which is empty."""
    mode, first = MODES[draw.mode], draw.planted[0].fault
    started = Ddprun(folder)
    mark = uuid.uuid4().hex
    options = {"workers": draw.workers, "sharded": draw.sharded, "background": draw.background}
    options |= {"memory_every": 1} if draw.memory else {}
    started.environment |= {
        "TRAIN_OPTIONS": json.dumps(options), "DDPGRAD_CHECK_REPLICAS": "2", MARK: mark, **mode.environment
    }  # fmt: skip
    if draw.prepared:
        references.prepare(draw.ranks, folder)
    faults = [word for planted in draw.planted for word in planted.words(limit())]
    ranks = str(draw.ranks)
    with _surroundings(first.setup) as (before, words):
        if mode.ddprun:
            if first.limit and draw.mode != "debug":
                words += ["--timeout" if draw.by_timeout else "--watchdog", str(limit())]
            if draw.restarts:
                words += ["--max-restarts", str(draw.restarts)]
            command = started.command("-n", ranks, *mode.words, *words, TRAIN, *faults)
        else:
            # Of a rank that another process manager or nobody started, and that ended early, only the limit tells.
            soon = first.limit or draw.planted[0].phase in BEFORE
            started.environment["DDPGRAD_TIMEOUT"] = str(limit() if soon else 10 * limit())
            by_hand = [sys.executable, str(BY_HAND), ranks, TRAIN]
            command = by_hand if draw.mode == "by hand" else plain(find(), started, draw.ranks, TRAIN)
            command += faults
        outcome, ended = _run([*before, *command], folder, started.environment, first.sent, mark)
    begun = [float(path.read_text()) for path in folder.glob("fired-*")]
    fired = {int(path.name.split("-")[1]) for path in folder.glob("fired-*")}
    if not mode.ddprun:  # nobody is there to remove what the fork server of a rank that was ended has left
        for path in started.temporary.glob("pymp-*"):
            shutil.rmtree(path)
    try:
        started.check_nothing_left()
        left = [f"the process {pid}" for pid in _marked(mark)]
        if draw.mode != "mpirun" or outcome.code not in (
            9,
            15,
            137,
            143,
        ):  # which the next run cleans up after
            left += _mapped(folder)
    except AssertionError as error:
        left = [str(error)]
    kept = Run(draw, outcome, ended - min(begun, default=ended), fired, left)
    if first.resumes and not draw.restarts:
        kept.again = started.run("-n", ranks, *mode.words, TRAIN)
    return kept


def _run(
    command: list[str], folder: Path, environment: dict[str, str], sent: tuple[str, ...], mark: str
) -> tuple[Result, float]:
    """The end of `command` and the time of it; what does not end is killed, and said to have the code 124."""
    popen = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    sender = threading.Thread(target=_send, args=(popen, folder, sent))
    sender.start()
    try:
        out, err = popen.communicate(timeout=12 * limit() + 60)
        code = popen.returncode
    except subprocess.TimeoutExpired:
        popen.kill()
        for pid in _marked(mark):
            os.kill(pid, signal.SIGKILL)
        out, err = popen.communicate()
        code = 124
    ended = time.monotonic()
    sender.join()
    return Result(code, out.decode(errors="replace"), err.decode(errors="replace")), ended


def _send(popen: subprocess.Popen[bytes], folder: Path, sent: tuple[str, ...]) -> None:
    """Send the launcher signals, the first when the fault has begun."""
    for name in sent:
        while popen.poll() is None and not list(folder.glob("fired-0-*")):
            time.sleep(0.02)
        time.sleep(0.3)  # two signals of a kind that are sent at once are one
        popen.send_signal(signal.Signals[name])


def _marked(mark: str) -> list[int]:
    """The processes that were started within a run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"{MARK}={mark}\0".encode() in (folder / "environ").read_bytes()
            if ours and (folder / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(int(folder.name))
        except OSError:  # it has just ended, or is not ours to look at
            continue
    return found


def _mapped(folder: Path) -> list[str]:
    """What of the run's shared memory still has a name."""
    names = {
        word
        for path in folder.glob("maps-*")
        for line in path.read_text().splitlines()
        for word in line.split()
        if word.startswith("/dev/shm/")
    }
    return [name for name in names if Path(name).exists()]


@contextmanager
def _surroundings(setup: str) -> Iterator[tuple[list[str], list[str]]]:
    """What stands before the command, and options of ddprun."""
    if setup == "taken port":
        with socket.create_server(("127.0.0.1", 0)) as taken:
            yield [], ["--rdzv-endpoint", f"127.0.0.1:{taken.getsockname()[1]}"]
    elif setup == "small memory" and os.geteuid() == 0:
        mount = "mount -t tmpfs -o size=1m tmpfs /dev/shm"
        yield ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh"], []
    else:
        yield [], []
