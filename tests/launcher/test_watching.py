"""A job while it runs: `ddprun --metrics` and `ddprun top` say what its ranks do, through restarts and to the end."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from running import LIMIT_S, Ddprun

from ddpgrad.launcher.cli.ddprun import main, parse
from ddpgrad.launcher.job import control

# A rank that fails, three steps after the restart, and a wait that the test ends.
TRAIN = """
import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.launcher import loggers
if rank == 1 and os.environ["DDPRUN_RESTART_COUNT"] == "0": os._exit(7)
dist.init_process_group()
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
log = loggers.start("run")
for step in (1, 2, 3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    log.log(step, {'odd "name"\\\\\\n': step + 0.5, "none": float("nan")})
open(f"ready-{rank}", "w").close()
while not os.path.exists("go"): time.sleep(0.01)
if rank == 1: os._exit(0)  # dies for the other
wait()
"""

ENDLESS = 'open(f"ready-{rank}", "w").close()\nwhile True: wait(); time.sleep(0.01)'

_SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (NaN|[+-]Inf|[-+.\de]+)')


def metrics(address: str) -> dict[str, float]:
    """The samples by their names and labels; every line is of the format."""
    with urlopen(address, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = answer.read().decode().splitlines()
    kinds: dict[str, str] = {}
    found: dict[str, float] = {}
    for line in lines:
        if line.startswith("# TYPE "):
            _, _, name, kinds[name] = line.split()
        elif not line.startswith("# HELP "):
            match = _SAMPLE.fullmatch(line)
            assert match and match[1] in kinds and match[1].startswith("ddpgrad_"), line
            assert (kinds[match[1]] == "counter") == match[1].endswith("_total")
            labels = re.sub(r',?(host|pid|script)="[^"]*"', "", match[2] or "")
            assert (match[1], labels) not in found
            found[f"{match[1].removeprefix('ddpgrad_')}{{{labels}}}"] = float(match[3])
    return found


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    "options", [(), pytest.param(("--mpi",), marks=pytest.mark.full)], ids=["processes", "by mpiexec"]
)
def test_a_job_is_seen_through_a_restart_a_stop_and_its_end(ddprun, mpiexec, capsys, options):
    def top() -> dict[str, list[str]]:
        """The rows of `ddprun top` by rank."""
        assert main(["top", "--once", str(job.pid)]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        return {row[0]: row[1:] for row in rows if row[0].isdecimal()}

    script = ddprun.script(TRAIN)
    job = ddprun.start("-n", "2", *options, "--max-restarts", "1", "--metrics", "0", script)
    assert job.stderr is not None
    address = job.stderr.readline().split()[-1]
    until(lambda: metrics(address).get('rank_steps_total{rank="1"}') == 3)
    until(lambda: metrics(address).get('logged_step{rank="0"}') == 3)
    seen = metrics(address)
    assert seen["job_restarts_total{}"] == 1 and seen["world_size{}"] == 2
    assert seen['rank_alive{rank="0"}'] == seen['rank_alive{rank="1"}'] == 1
    assert seen['rank_collectives_total{rank="0"}'] >= 3
    assert seen['logged_value{rank="0",name="odd \\"name\\"\\\\\\n"}'] == 3.5
    assert seen['rank_info{rank="1",process="1"}'] == 1
    assert sum(name.startswith("process_resident_memory_bytes") for name in seen) == seen["processes{}"]
    with pytest.raises(HTTPError, match="404") as refused:
        urlopen(address.removesuffix("metrics"), timeout=60)
    refused.value.close()

    rows = top()
    assert [(row[2], row[3]) for row in rows.values()] == [("running", "3")] * 2
    pid = int(rows["1"][1])
    os.kill(pid, signal.SIGSTOP)
    until(lambda: top()["1"][2] == "silent")
    os.kill(pid, signal.SIGCONT)
    until(lambda: top()["1"][2] == "running")
    (ddprun.folder / "go").touch()
    assert ddprun.end(job).code == 1
    assert main(["top", str(job.pid)]) == 2
    assert f"no ddprun of yours with process number {job.pid} answers" in capsys.readouterr().err


def test_of_several_jobs_one_is_asked_for_and_a_killed_launcher_leaves_none(ddprun, tmp_path, capsys):
    first = ddprun.start("-n", "2", ddprun.script(ENDLESS))
    other = Ddprun(tmp_path / "other")
    other.folder.mkdir()
    second = other.start("-n", "1", other.script(ENDLESS))
    assert main(["top"]) == 2
    said = capsys.readouterr().err
    assert f"ddprun top {first.pid} " in said and f"ddprun top {second.pid} " in said
    first.kill()
    second.send_signal(signal.SIGTERM)
    ddprun.end(first)
    assert other.end(second).code == 128 + signal.SIGTERM
    assert not {first.pid, second.pid} & set(control.running())


def test_who_connects_and_says_nothing_makes_room_and_harms_nobody(ddprun):
    job = ddprun.start("-n", "1", "--metrics", "0", ddprun.script(ENDLESS))
    assert job.stderr is not None
    address = job.stderr.readline().split()[-1]
    port = int(address.rpartition(":")[2].partition("/")[0])
    ddprun.wait_for("ready-*", 1)
    with contextlib.ExitStack() as clients:

        def connect() -> socket.socket:
            return clients.enter_context(socket.create_connection(("127.0.0.1", port)))

        silent = [connect() for _ in range(32)]
        metrics(address)  # so all have been accepted
        # The launcher finds both at once: who makes room for the last has something to say.
        job.send_signal(signal.SIGSTOP)
        connect()
        silent[1].sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        job.send_signal(signal.SIGCONT)
        assert metrics(address)["world_size{}"] == 1
    job.send_signal(signal.SIGTERM)
    assert ddprun.end(job).code == 128 + signal.SIGTERM


def test_many_may_ask_at_once_and_names_of_others_do_not_count(ddprun, capsys):
    job = ddprun.start("-n", "1", ddprun.script(ENDLESS))
    ddprun.wait_for("ready-*", 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other, ThreadPoolExecutor(8) as asking:
        other.bind(control._name("none"))
        other.listen()
        answers = list(asking.map(control.status, [job.pid] * 200))
        assert {answer["pid"] for answer in answers} == {job.pid} <= set(control.running())
    job.send_signal(signal.SIGTERM)
    ddprun.end(job)


def test_top_fits_the_terminal_and_gives_it_back(ddprun):
    job = ddprun.start("-n", "4", "--procs", "1", ddprun.script(ENDLESS))
    ddprun.wait_for("ready-*", 4)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 4, 30, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    top = subprocess.Popen(ddprun.command("top", str(job.pid)), stdout=theirs, env=environment)
    seen = b""
    while b"more lines" not in seen:
        seen += os.read(ours, 4096)
    lines = seen.decode().partition("\x1b[J")[2].splitlines()
    assert len(lines) == 4 and max(map(len, lines)) <= 30 and lines[-1].startswith("… 3 more lines")
    top.send_signal(signal.SIGTERM)
    assert top.wait(600) == 128 + signal.SIGTERM
    os.close(theirs)
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := os.read(ours, 4096):
            seen += data
    os.close(ours)
    assert b"\x1b[?1049l" in seen
    job.send_signal(signal.SIGTERM)
    ddprun.end(job)


def test_a_port_that_is_taken_is_said_before_anything_starts(ddprun):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = ddprun.run("--metrics", str(port), ddprun.script("", prelude="open('began', 'w')"))
    assert result.code == 2 and not (ddprun.folder / "began").exists()
    assert result.err.startswith(f"ddprun: error: --metrics 127.0.0.1:{port} cannot be listened to: ")


def test_the_address_of_metrics_is_checked(capsys):
    assert parse(["--metrics", "[::1]:9400", __file__]).metrics == ("::1", 9400)
    for value, said in (("x", "takes PORT or HOST:PORT, got 'x'"), ("h:70000", "takes PORT or HOST:PORT")):
        assert main(["--metrics", value, __file__]) == 2 and said in capsys.readouterr().err
    assert main(["top", "--every", "inf"]) == 2 and "--every inf: the seconds" in capsys.readouterr().err
    assert main(["--debug", "--metrics", "0", __file__]) == 2
    assert "--debug has this terminal and no launcher beside it" in capsys.readouterr().err
