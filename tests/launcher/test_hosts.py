"""ddprun across hosts: network namespaces of this machine, each reached by a command in place of ssh."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "cluster"))

import namespaces

pytestmark = pytest.mark.netns

WORK = """
total = np.array([rank + 1.0])
me.communicator().all_reduce(total).wait()
print(f"total {total[0]} by {me.communicator().transport}, local {os.environ['LOCAL_RANK']}")
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[namespaces.Run]:
    if reason := namespaces.why_not():
        pytest.skip(reason)
    with namespaces.hosts(2) as run:
        yield run


@pytest.fixture
def across(ddprun, hosts):
    """Options of ddprun for two ranks on each of the hosts."""
    ddprun.environment |= hosts.variables
    return ["-n", "4", "--hosts", ",".join(f"{address}:2" for address in hosts.addresses)]


def test_the_ranks_of_all_hosts_are_one_world(ddprun, across):
    result = ddprun.run(*across, ddprun.script(WORK))
    assert result.code == 0, result.err
    said = [f"[rank {i}] total 10.0 by hierarchical, local {i % 2}" for i in range(4)]
    assert sorted(result.out.splitlines()) == said


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ValueError('boom')", "exit code 1"),
        ("os._exit(0)", "exit code 0"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
    ],
)
def test_the_rank_at_fault_is_named_on_whichever_host(ddprun, across, body, reason):
    result = ddprun.run(*across, ddprun.script(f"\nif rank == 3: {body}\nwait()\n"))
    assert result.code == 1
    assert f"ddprun: rank 3 failed ({reason}); all ranks were ended." in result.said


def test_the_stacks_of_all_hosts_are_collected(ddprun, across):
    script = ddprun.script("\nif rank == 2: time.sleep(0.5); os.kill(os.getpid(), signal.SIGSTOP)\nwait()\n")
    result = ddprun.run(*across, "--watchdog", "6", "--log-dir", "run", script)
    assert result.code == 3 and len(result.said) <= 25
    assert "ddprun: rank 2 failed (stalled); all ranks were ended." in result.said
    report = json.loads((ddprun.folder / "run" / "failure.json").read_text())
    for rank in range(4):
        assert "script.py" in (ddprun.folder / "run" / f"rank_{rank}.stacks").read_text()
        assert report["ranks"][str(rank)]["last"]


def test_the_ranks_of_all_hosts_die_with_the_launcher(ddprun, across):
    body = """
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
note(child.pid)
open(f"ready-{rank}", "w").close()
time.sleep(60)
"""
    popen = ddprun.start(*across, ddprun.script(body))
    popen.kill()
    popen.communicate(timeout=30)
    ddprun.check_nothing_left()


def test_a_signal_lets_the_ranks_of_all_hosts_save(ddprun, across):
    script = ddprun.script("""
import ddpgrad
from ddpgrad import distributed
from launcher import Checkpointer
distributed.init_process_group()
checkpoints = Checkpointer("checkpoints", sharded=True)
for step in range(1000):
    time.sleep(0.05)
    checkpoints.step(step, state=ddpgrad.nn.Linear(3, 3))
    if step == 2: open(f"ready-{rank}", "w").close()
""")
    popen = ddprun.start(*across, script)
    os.kill(popen.pid, 10)
    result = ddprun.end(popen)
    assert result.code == 75 and "ddprun: preempted after step" in result.err
