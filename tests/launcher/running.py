"""Runs ddprun as a user does, and checks after each run that nothing of the job is left."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

from patience import patience

from ddpgrad.launcher.job import mpi

# A run that takes longer hangs, and a process or file that is still there after LEFT_S stays. The documented
# limit (5 s) is for a machine that is otherwise idle.
LIMIT_S = 600
LEFT_S = 30

# Every test script starts with this. With the notes the test finds processes and files of the job.
PRELUDE = """\
import os, signal, subprocess, sys, time
import numpy as np
from ddpgrad.distributed.ranks import host
me = host.current()
rank = me.rank
def note(pid): open(f"left-{pid}", "w").write(str(me.launch.job))
note(os.getpid())
def wait():
    "Meet all other ranks."
    me.communicator().barrier()
wait()
"""

# The same for a script whose loaders have workers, which import it again.
LOADER_PRELUDE = """\
import os, signal, sys, time
from ddpgrad.distributed.ranks import host
def note(pid): open(f"left-{pid}", "w").write(os.environ.get("DDPGRAD_JOB", "None"))
note(os.getpid())
if __name__ == "__main__":
    me = host.current()
    rank = me.rank
    wait = me.communicator().barrier
    wait()
"""


# A rank that ends before it has met the other.
ENDS_EARLY = """
import os, sys
import ddpgrad.distributed as dist
if os.environ["RANK"] == "1": sys.exit()
dist.init_process_group()
"""


# A file by which Python's tempfile tries whether a folder can be written to; a process may be killed before it is removed.
_PROBE = re.compile("[a-z0-9_]{8}")


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def said(self) -> list[str]:
        """What ddprun itself said: its lines, and the text after the last of them."""
        lines = self.err.splitlines()
        first = next((i for i, line in enumerate(lines) if line.startswith("ddprun:")), len(lines))
        return lines[first:]


# The action of rank 1 of a job without ddprun, the reported reason, and the line that is named.
WITHOUT_DDPRUN = {
    "raises": ("raise ValueError('boom')", "exit code 1", "culprit"),
    "_exit": ("os._exit(0)", "exit code 0", "culprit"),
    "stopped": ("os.kill(os.getpid(), signal.SIGSTOP)", "stalled", "culprit"),
    "disagrees": ("me.communicator().all_reduce(np.zeros(4))", "exit code 1", "culprit"),
    "killed": ("os.kill(os.getpid(), 9)", "ended before its script was finished", ""),
}
_WITHOUT_DDPRUN = """
if rank == 0: open("maps", "w").write(open("/proc/self/maps").read())
for _ in range(24): wait()
if rank == 1: FAULT  # culprit
if rank == 2: time.sleep(LATE)
wait()
"""


def plain(mpiexec: str, ddprun: Ddprun, ranks: int, script: str) -> list[str]:
    """The command line of a user who starts the script with mpiexec alone."""
    command = [mpiexec]
    if mpi.flavour(mpiexec) == "openmpi":
        ddprun.environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        command += ["--oversubscribe", "--bind-to", "none"]
    return [*command, "-n", str(ranks), sys.executable, script]


class Ddprun:
    """Runs and starts ddprun in a folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Names of sockets are short, and those of pytest's folders long.
        self.temporary = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, self.temporary, ignore_errors=True)
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DDPGRAD_", "OMP_", "PYTHONUNBUFFERED"))
        }
        self.environment["TMPDIR"] = str(self.temporary)
        # To load compiled kernels takes half of the time of a rank that trains, and no test of jobs is about them.
        self.environment["DDPGRAD_NUMBA"] = "0"

    def script(self, body: str, prelude: str = PRELUDE) -> str:
        (self.folder / "script.py").write_text(prelude + body)
        return "script.py"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "ddpgrad.launcher", *arguments]

    def run(self, *arguments: str, command: list[str] | None = None, stdin: str = "") -> Result:
        done = subprocess.run(
            command or self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            input=stdin.encode(),
            capture_output=True,
            timeout=LIMIT_S,
        )
        self.check_nothing_left()
        return Result(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode())

    def check_without(self, command: list[str], how: str) -> None:
        """Run `command`, which starts three ranks of script.py without ddprun, and check the report of the failure `how`."""
        fault, reason, culprit = WITHOUT_DDPRUN[how]
        self.environment["DDPGRAD_TIMEOUT"] = str(patience())
        self.script(_WITHOUT_DDPRUN.replace("FAULT", fault).replace("LATE", str(patience() / 2)))
        line = 1 + PRELUDE.count("\n") + 3
        for folder in ("", "run"):
            self.environment["DDPGRAD_LOG_DIR"] = folder
            result = self.run(command=command)
            assert result.code != 0
            segments = re.findall(r"/dev/shm/\S+", (self.folder / "maps").read_text())
            assert not [segment for segment in segments if Path(segment).exists()]
            block = [said for said in result.err.splitlines() if said.startswith("ddpgrad: ")]
            assert block[-1] == f"ddpgrad: rank 1 failed ({reason}); all ranks were ended.", result.err
            where = f"script.py:{line}, last began" if culprit else ""
            assert where in block[-2], result.err
            assert how != "raises" or "ValueError: boom" in result.err
            if not folder:
                for rank in (0, 2):  # the stacks and collectives of the others
                    assert f"ddpgrad: rank {rank} was at" in block, result.err
                    assert f"ddpgrad: rank {rank} began" in result.err
                assert result.err.count("barrier at") >= 2 * 20
                continue
            report = json.loads((self.folder / folder / "failure.json").read_text())
            assert report["first"]["ranks"] == [1] and report["first"]["reason"] == reason
            reporting = {"0", "1", "2"} if culprit else {"0", "2"}
            assert set(report["ranks"]) == reporting
            assert all(len(report["ranks"][rank]["last"]) == 20 for rank in reporting)
            for rank in reporting:
                assert "script.py" in (self.folder / folder / f"rank_{rank}.stacks").read_text()

    def start(self, *arguments: str) -> subprocess.Popen:
        """Start ddprun and return when every rank has met the others."""
        ranks = int(arguments[arguments.index("-n") + 1])
        popen = subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.wait_for("ready-*", ranks)
        return popen

    def wait_for(self, pattern: str, count: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while len(list(self.folder.glob(pattern))) < count:
            assert time.monotonic() < deadline, f"no {count} {pattern} in {LIMIT_S} s"
            time.sleep(0.02)

    def end(self, popen: subprocess.Popen) -> Result:
        out, err = popen.communicate(timeout=LIMIT_S)
        self.check_nothing_left()
        return Result(popen.returncode, out, err)

    def check_nothing_left(self) -> None:
        """No process of the job, no shared memory, no temporary file: all goes, if not at once."""
        notes = list(self.folder.glob("left-*"))
        deadline = time.monotonic() + LEFT_S  # the kernel's signal at the launcher's death takes a moment
        while found := self._left(notes):
            assert time.monotonic() < deadline, f"left over: {found}"
            time.sleep(0.02)

    def _left(self, notes: list[Path]) -> list[str]:
        alive = [note.name for note in notes if _is_running(int(note.name.removeprefix("left-")))]
        jobs = {note.read_text() for note in notes} - {"None", ""}
        # Loader workers and whatever else the ranks started have the job in the environment they began with.
        memory = [str(path) for job in jobs for path in Path("/dev/shm").glob(f"*{job}*")]
        found = [(at, name) for at, folders, names in os.walk(self.temporary) for name in (*folders, *names)]
        files = [os.path.join(at, name) for at, name in found if not _PROBE.fullmatch(name)]
        return alive or _processes_of(jobs) or memory + files


def _processes_of(jobs: set[str]) -> list[str]:
    """The command lines of processes that were started within one of `jobs`."""
    wanted = [f"DDPGRAD_JOB={job}\0".encode() for job in jobs]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            if any(job in environment for job in wanted) and _is_running(int(folder.name)):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except (OSError, ValueError):  # it has just ended, or is not ours to look at
            continue
    return found


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
