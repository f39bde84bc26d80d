"""Output of ranks arrives whole, marked with the rank, and on a terminal progress bars survive."""

import os
import pty
import re
import select
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from matrices import thinned
from running import LIMIT_S

from ddpgrad.launcher.job.output import Lines


def on_a_terminal(ddprun, *arguments: str, answers: Sequence[tuple[str, str]] = ()) -> tuple[int, str]:
    """Run ddprun on a pseudo-terminal, typing each answer when its question has appeared."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ddprun.folder)
        os.execve(sys.executable, ddprun.command(*arguments), ddprun.environment)
    screen, waiting, deadline = b"", list(answers), time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:  # EIO: everyone has closed the terminal
            break
        screen += data
        if waiting and waiting[0][0].encode() in screen:
            os.write(terminal, waiting.pop(0)[1].encode())
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    ddprun.check_nothing_left()
    return code, screen.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("procs", thinned(["4", "2", "1"], "2"))
def test_each_line_is_whole_and_has_its_rank(ddprun, procs):
    script = ddprun.script("""
for step in range(500):
    print(f"rank {rank} step {step}", "x" * 200)
    if step % 100 == 0: wait()
""")
    result = ddprun.run("-n", "4", "--procs", procs, script)
    assert (result.code, result.err) == (0, "")
    lines = [re.fullmatch(r"\[rank (\d)\] rank \1 step \d+ x{200}", line) for line in result.out.splitlines()]
    assert all(lines) and Counter(line[1] for line in lines if line) == dict.fromkeys("0123", 500)


def test_no_prefix_and_own_streams_for_one_rank(ddprun):
    result = ddprun.run(ddprun.script("print('out'); print('err', file=sys.stderr)\n"))
    assert (result.code, result.out, result.err) == (0, "out\n", "err\n")


def test_odd_bytes_long_lines_and_native_output_pass(ddprun):
    script = ddprun.script("""
sys.stdout.buffer.write(b"odd \\xff\\xfe bytes\\n"); sys.stdout.flush()
os.write(1, b"@" * 3_000_000 + b"\\n")
subprocess.run(["echo", "from a child"])
print("no newline", end="")
""")
    result = ddprun.run("-n", "2", script)
    assert result.code == 0
    assert "[rank 1] odd \ufffd\ufffd bytes\n" in result.out
    assert result.out.count("@") == 6_000_000
    assert "[rank 0] from a child\n" in result.out
    assert result.out.count("no newline") == 2


def test_an_unread_pipe_slows_the_ranks_and_a_closed_one_ends_them(ddprun):
    script = ddprun.script("""
open(f"ready-{rank}", "w").close()
while True: print("z" * 1000)
""")
    running = ddprun.start("-n", "2", script)
    time.sleep(0.5)
    memory = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{running.pid}/status").read_text())
    assert memory is not None and int(memory[1]) < 200_000
    running.stdout.close()
    running.stdout = None
    result = ddprun.end(running)
    assert (result.code, result.said) == (
        1,
        ["ddprun: nobody reads the output any more; all ranks were ended."],
    )


def test_output_that_cannot_be_written_ends_the_job_and_says_why(ddprun):
    script = ddprun.script("\nprint('a line')\nwait()\ntime.sleep(600)\n")
    command = ["sh", "-c", 'exec "$@" >/dev/full', "sh", *ddprun.command("-n", "2", script)]
    result = ddprun.run(command=command)
    assert result.code == 1
    assert result.said == [
        "ddprun: the output cannot be written ([Errno 28] No space left on device); all ranks were ended."
    ]


def test_closed_streams_lead_nowhere(ddprun):
    """What is opened next would get their numbers, and the output of the ranks."""
    script = ddprun.script("""
print(rank, sys.stdin.read())
print("error", file=sys.stderr)
wait()
open(f"ready-{rank}", "w").close()
""")
    command = [
        "sh",
        "-c",
        'exec "$@" <&- >&- 2>&-',
        "sh",
        *ddprun.command("-n", "2", "--log-dir", "logs", script),
    ]
    assert ddprun.run(command=command).code == 0
    assert len(list(ddprun.folder.glob("ready-*"))) == 2
    assert (ddprun.folder / "logs" / "rank_1.log").read_text() == "1 \nerror\n"


def test_a_progress_bar_of_rank_0_has_the_terminal(ddprun):
    script = ddprun.script("""
wait()
if rank == 0: print(sys.stderr.isatty(), file=sys.stderr)
if rank == 0: print("\\r 50%", end="", flush=True, file=sys.stderr)
if rank == 0: print("\\r100%", file=sys.stderr)
wait()
print("done", sys.stdout.isatty())
""")
    code, screen = on_a_terminal(ddprun, "-n", "2", script)
    assert code == 0
    assert "True\n\r 50%\r100%\n" in screen
    assert "[rank 1] done False\n" in screen


def test_a_debugger_stops_one_rank_alone(ddprun):
    script = ddprun.script("""
x = 40
if rank == 2:
    breakpoint()
    x += rank
wait()
print("x is", x)
""")
    answers = [("(Pdb)", "p 'here', rank, x\n"), ("('here', 2, 40)", "x = 50\n"), ("x = 50", "c\n")]
    code, screen = on_a_terminal(ddprun, "-n", "4", "--debug", script, answers=answers)
    assert code == 0
    assert "[rank 2] x is 52\n" in screen and screen.count("x is 40\n") == 3

    typed = ddprun.run("-n", "4", "--debug", script, stdin="c\n")
    assert typed.code == 0 and "[rank 2] (Pdb) x is 42\n" in typed.out


def test_leaving_the_debugger_ends_quietly(ddprun):
    script = ddprun.script("""
from ddpgrad import nn, ones, optim
layer = nn.Linear(2, 1)
optimizer = optim.SGD(layer.parameters())
for _ in range(3):
    layer(ones(1, 2)).sum().backward()
    optimizer.step()
if rank == 0: breakpoint()
wait()
""")
    result = ddprun.run("-n", "2", "--debug", script, stdin="q\n")
    assert result.code == 1 and "Traceback" not in result.err
    [said] = result.said
    assert "rank 0 was at script.py:" in said and "after 3 optimizer steps" in said


ASKS = """
if rank == 0: print("It is", input("name? "), sys.stdin.read().split())
if rank == 1: print("Nothing", sys.stdin.read().split())
"""


def test_standard_input_is_rank_0s(ddprun):
    alone, two = (ddprun.run("-n", n, ddprun.script(ASKS), stdin="Ada\nx\ny") for n in "12")
    assert (alone.code, alone.out) == (0, "name? It is Ada ['x', 'y']\n")
    by_mpi = ddprun.run("--mpi", "-n", "2", ddprun.script(ASKS), stdin="Ada\nx\ny")
    for result in (two, by_mpi):  # rank 1's line may come while rank 0's has only its question
        assert "name? " in result.out and "It is Ada ['x', 'y']\n" in result.out, result.out
        assert "[rank 1] Nothing []\n" in result.out
    answers = [("name? ", "Ada\n"), ("Ada", "x\n"), ("x\r\n", "\x04")]
    code, screen = on_a_terminal(ddprun, "-n", "2", ddprun.script(ASKS), answers=answers)
    assert code == 0 and "It is Ada ['x']\n" in screen and "Nothing []\n" in screen


def test_lines_of_two_sources_never_mix():
    lines = Lines()
    said = [("a", b"one\ntw"), ("b", b"three\n"), ("a", b"o\n"), ("b", b"\r 1%\r 2%"), ("b", b"\n")]
    shown = b"".join(lines.mark(who, f"[{who}] ".encode(), data) for who, data in said)
    assert shown == b"[a] one\n[a] tw\n[b] three\n[a] o\n\r[b]  1%\r[b]  2%\n"
