"""ddprun across hosts: network namespaces of this machine, each reached by a command in place of ssh."""

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from matrices import thinned
from patience import patience
from restarting import TRAIN, results
from running import LIMIT_S, Ddprun, Result

sys.path.append(str(Path(__file__).parents[2] / "cluster"))

import namespaces

pytestmark = pytest.mark.netns

WORK = """
total = np.array([rank + 1.0])
me.communicator().all_reduce(total).wait()
print(f"total {total[0]} by {me.communicator().transport}, local {os.environ['LOCAL_RANK']}")
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[namespaces.Box]:
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
    thinned(
        [
            ("raise ValueError('boom')", "exit code 1"),
            ("os._exit(0)", "exit code 0"),
            ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ],
        "os.kill(os.getpid(), 9)",
    ),
)
def test_the_rank_at_fault_is_named_on_whichever_host(ddprun, across, body, reason):
    result = ddprun.run(*across, ddprun.script(f"\nif rank == 3: {body}\nwait()\n"))
    assert result.code == 1
    assert f"ddprun: rank 3 failed ({reason}); all ranks were ended." in result.said


@pytest.mark.full
def test_the_stacks_of_all_hosts_are_collected(ddprun, across):
    script = ddprun.script("\nif rank == 2: time.sleep(0.5); os.kill(os.getpid(), signal.SIGSTOP)\nwait()\n")
    result = ddprun.run(*across, "--watchdog", str(patience() + 2), "--log-dir", "run", script)
    assert result.code == 3 and len(result.said) <= 25
    assert "ddprun: rank 2 failed (stalled); all ranks were ended." in result.said
    report = json.loads((ddprun.folder / "run" / "failure.json").read_text())
    for rank in range(4):
        assert "script.py" in (ddprun.folder / "run" / f"rank_{rank}.stacks").read_text()
        assert report["ranks"][str(rank)]["last"]


@pytest.mark.full
def test_the_ranks_of_all_hosts_die_with_the_launcher(ddprun, across):
    body = """
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
note(child.pid)
open(f"ready-{rank}", "w").close()
time.sleep(600)
"""
    popen = ddprun.start(*across, ddprun.script(body))
    popen.kill()
    popen.communicate(timeout=600)
    ddprun.check_nothing_left()


@pytest.mark.full
def test_a_signal_lets_the_ranks_of_all_hosts_save(ddprun, across):
    script = ddprun.script("""
import ddpgrad
from ddpgrad import distributed
from ddpgrad.launcher import Checkpointer
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


class Training:
    """Four ranks that train on three hosts, until something happens to these."""

    def __init__(self, ddprun: Ddprun, hosts: namespaces.Box) -> None:
        self.ddprun, self.hosts = ddprun, hosts
        self.script = ddprun.script(TRAIN)
        self.undisturbed = results(ddprun.run("-n", "4", "--procs", "1", self.script, "alone", "-1").out)
        ddprun.environment |= hosts.variables
        assert len(self.undisturbed) == 4

    def run(self, trouble: Callable[[], object], *options: str, memory_every: int | None = None) -> Result:
        slots = [f"{host}:{count}" for host, count in zip(self.hosts.addresses, (2, 1, 1), strict=True)]
        hosts = ["--hosts", ",".join(slots), "--max-restarts", "1", *options]
        memory = [] if memory_every is None else [str(memory_every)]
        running = self.ddprun.start("-n", "4", *hosts, self.script, "checkpoints", "5", *memory)
        trouble()
        return self.ddprun.end(running)


@pytest.fixture
def training(ddprun) -> Iterator[Training]:
    if reason := namespaces.why_not():
        pytest.skip(reason)
    with namespaces.hosts(3) as hosts:
        yield Training(ddprun, hosts)


@pytest.mark.full
@pytest.mark.parametrize(
    ("how", "number", "ranks", "procs"), [("kill", 0, "ranks 0, 1", 2), ("cut", 1, "rank 2", 3)]
)
def test_a_job_goes_on_without_a_host_that_is_lost(training, how, number, ranks, procs):
    lost = training.hosts.addresses[number]
    result = training.run(lambda: getattr(training.hosts, how)(lost), "--min-procs", "2")
    assert result.code == 0, result.err
    assert f"ddprun: {ranks} failed (host {lost} was lost); all ranks were ended." in result.said
    assert f"ddprun: going on without {lost}: 4 ranks in {procs} processes on " in result.err
    assert results(result.out) == training.undisturbed


@pytest.mark.full
@pytest.mark.parametrize("number", [0, 1])
def test_what_a_lost_host_had_in_memory_its_neighbour_has(training, number):
    lost = training.hosts.addresses[number]
    trouble = functools.partial(training.hosts.kill, lost)
    result = training.run(trouble, "--min-procs", "2", memory_every=1)
    assert result.code == 0, result.err
    # MPICH's mpiexec may fail an assertion of its own when a host is gone; then nobody can say which host it was.
    assert f"ddprun: going on without {lost}: " in result.err or "assert (!closed) failed" in result.err
    firsts = sorted(line for line in result.out.splitlines() if "] first " in line)
    assert firsts == [f"[rank {rank}] first {step}" for rank in range(4) for step in (0, 5)]
    assert results(result.out) == training.undisturbed
    training.ddprun.check_nothing_left()


@pytest.mark.full
def test_a_host_of_which_one_rank_died_stays(training):
    killed = training.ddprun.folder / "ready-2"
    result = training.run(lambda: os.kill(int(killed.read_text()), signal.SIGKILL))
    assert result.code == 0, result.err
    assert "ddprun: rank 2 failed (killed by SIGKILL); all ranks were ended." in result.said
    assert "going on without" not in result.err
    assert results(result.out) == training.undisturbed


@pytest.mark.full
def test_a_job_ends_when_the_hosts_that_remain_have_too_few_places(training):
    lost = training.hosts.addresses[2]
    result = training.run(lambda: training.hosts.kill(lost))
    assert result.code == 1
    assert result.said[-1].startswith("ddprun: no restart: ") and f"without {lost}" in result.said[-1]


@pytest.mark.full
def test_a_node_that_is_cut_off_ends_and_the_others_go_on(training):
    ddprun, (first, second, _) = training.ddprun, training.hosts.addresses
    options = ["--nnodes", "2", "--rdzv-endpoint", f"{first}:29500", "-n", "2", "--max-restarts", "1"]
    command = ddprun.command(*options, "--min-procs", "2", training.script, "checkpoints", "5")
    nodes = [
        subprocess.Popen(
            ["ip", "netns", "exec", training.hosts.namespace(host), *command],
            cwd=ddprun.folder, env=ddprun.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for host in (first, second)
    ]  # fmt: skip
    ddprun.wait_for("ready-*", 4)
    training.hosts.cut(second)
    (out, err), (_, said) = (node.communicate(timeout=LIMIT_S) for node in nodes)
    assert [node.returncode for node in nodes] == [0, 1], err
    assert "ddprun: going on without node1: 4 ranks in 2 processes on node0:2." in err
    assert f"ddprun: lost the first node at {first}:29500" in said
    assert results(out) == training.undisturbed
    ddprun.check_nothing_left()


# At a step the file of hosts changes, and that step is the last on the present hosts.
MOVES = """
import hashlib
import ddpgrad as torch
from ddpgrad import distributed, nn
from ddpgrad.launcher import Checkpointer

distributed.init_process_group()
attempt = int(os.environ["DDPRUN_RESTART_COUNT"])
moves = json.loads(sys.argv[1])
torch.manual_seed(1)
model = nn.Linear(5, 3)
ddp = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
checkpoints = Checkpointer("checkpoints", memory_every=1)
state = {"model": model, "optimizer": optimizer}
if rank == 0 and attempt: os.rename("checkpoints", f"away-{attempt}")  # what comes from memory needs no file
wait()
first = checkpoints.resume(**state) or 0
print(f"attempt {attempt}: from {first} by {os.environ['DDPGRAD_PROCS']}")
for step in range(first, 9):
    loss = ddp(torch.full((2, 5), float(rank + step))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    checkpoints.step(step, **state)
    if attempt < len(moves) and step == 2 * attempt + 1:
        if rank == 0:
            open("new", "w").write(moves[attempt])
            os.replace("new", "hosts")
        while True:
            checkpoints.step(step, **state)
            time.sleep(0.05)
print("result", hashlib.sha256(model.weight.detach().numpy().tobytes()).hexdigest())
"""


def test_hosts_join_and_leave_when_their_file_changes(ddprun, hosts):
    script = ddprun.script("import json\n" + MOVES)
    undisturbed = results(ddprun.run("-n", "4", "--procs", "1", script, "[]").out)
    ddprun.environment |= hosts.variables
    one, two = hosts.addresses
    # To both, with one that is not there and cannot join; to the second alone, after a file that says nothing.
    moves = [f"{one}:2\n{two} slots=2\n198.51.100.1:4\n", f"{two}:2\n"]
    (ddprun.folder / "hosts").write_text(f"{one}:2\n")
    options = ["-n", "4", "--hosts-from", "hosts", "--min-procs", "2", "--max-restarts", "1"]
    result = ddprun.run(*options, script, json.dumps(moves))
    assert result.code == 0, result.err
    said = sorted({line.partition("] ")[2] for line in result.out.splitlines() if "] attempt " in line})
    assert said == ["attempt 0: from 0 by 2", "attempt 1: from 2 by 4", "attempt 2: from 4 by 2"]
    assert f"whose checkpoint is saved; going on in 4 processes on {one}:2,{two}:2." in result.err
    assert results(result.out) == undisturbed
    ddprun.check_nothing_left()
