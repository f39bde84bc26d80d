"""Floods of output, bytes that are no text, readers that stall: nothing is lost, nothing grows, nothing hangs."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from matrices import thinned
from running import LIMIT_S

MB = 1_000_000
# Of the launcher: itself, and what may wait for a reader (1 MB a stream).
MOST_MEMORY_MB = 120


def peak_memory(pid: int) -> float:
    """The most memory that a process has had, in MB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


def flood(ddprun, line: str, count: int, before: str = "") -> str:
    return ddprun.script(f"""
wait()
{before}
line = {line}
for _ in range({count}):
    sys.stdout.buffer.write(line)
sys.stdout.buffer.flush()
""")


@pytest.mark.parametrize(
    "line",
    thinned(
        ["b'x' * 99 + b'\\n'", "b'\\xff\\x80\\xc3(' * 25 + b'\\n'", "b'no end'"],
        "b'\\xff\\x80\\xc3(' * 25 + b'\\n'",
    ),
)
def test_100_mb_from_two_ranks_arrive_whole_in_bounded_memory(ddprun, line):
    size = len(eval(line))
    count = 50 * MB // size
    script = flood(ddprun, line, count)
    running = subprocess.Popen(
        ddprun.command("-n", "2", script), cwd=ddprun.folder, env=ddprun.environment, stdout=subprocess.PIPE
    )
    assert running.stdout is not None
    total, lines, peak = 0, 0, 0.0
    while data := os.read(running.stdout.fileno(), MB):
        total += len(data)
        lines += data.count(b"\n")
        peak = max(peak, peak_memory(running.pid))
    running.stdout.close()
    assert running.wait(LIMIT_S) == 0
    ddprun.check_nothing_left()
    assert total > 2 * count * size
    if line != "b'no end'":
        assert lines == 2 * count
    assert peak < MOST_MEMORY_MB


def test_a_reader_that_stalls_and_comes_back_misses_nothing(ddprun):
    script = flood(ddprun, "b'x' * 99 + b'\\n'", 50_000, 'open(f"ready-{rank}", "w").close()')
    running = subprocess.Popen(
        ddprun.command("-n", "2", script), cwd=ddprun.folder, env=ddprun.environment, stdout=subprocess.PIPE
    )
    ddprun.wait_for("ready-*", 2)
    time.sleep(2)  # nobody reads, and the ranks have 10 MB to say
    assert running.poll() is None
    assert peak_memory(running.pid) < MOST_MEMORY_MB
    out, _ = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 0
    assert len(re.findall(rb"(?m)^\[rank [01]\] x{99}$", out)) == 100_000
    ddprun.check_nothing_left()


def test_a_rank_that_fails_while_nobody_reads_ends_the_others_all_the_same(ddprun):
    fault = """
open(f"ready-{rank}", "w").close()
if rank == 1:
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    script = flood(ddprun, "b'x' * 99 + b'\\n'", 10**9, fault)
    running = subprocess.Popen(
        ddprun.command("-n", "2", script),
        cwd=ddprun.folder,
        env=ddprun.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    ddprun.wait_for("ready-*", 2)
    time.sleep(1)
    ddprun.check_nothing_left()  # the ranks; the launcher still has something to say
    _, err = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 1
    assert b"ddprun: rank 1 failed (killed by SIGKILL); all ranks were ended." in err
