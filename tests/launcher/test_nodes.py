"""Several ddprun instances that are one job: here all run on one host, as if on several."""

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from matrices import thinned
from patience import patience
from restarting import TRAIN, results
from running import LIMIT_S, Ddprun

from ddpgrad.errors import LaunchError
from ddpgrad.launcher.job import mpi, nodes

WORK = """
total = np.array([rank + 1.0])
me.communicator().all_reduce(total).wait()
print(f"total {total[0]}, local {os.environ['LOCAL_RANK']} of {os.environ['LOCAL_WORLD_SIZE']}")
"""


@pytest.fixture
def endpoint(mpiexec: str) -> str:
    if mpi.flavour(mpiexec) != "mpich":
        pytest.skip("needs MPICH's mpiexec")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def start(ddprun: Ddprun, endpoint: str, node: int, *arguments: str, count: int = 2) -> subprocess.Popen[str]:
    command = ddprun.command(
        "--nnodes", str(count), "--node-rank", str(node), "--rdzv-endpoint", endpoint, *arguments
    )
    return subprocess.Popen(
        command, cwd=ddprun.folder, env=ddprun.environment, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def ended(*nodes: subprocess.Popen[str]) -> list[tuple[int, str, str]]:
    said = [node.communicate(timeout=LIMIT_S) for node in nodes]
    return [(node.returncode, out, err) for node, (out, err) in zip(nodes, said, strict=True)]


def test_the_first_node_waits_until_its_own_name_is_known(monkeypatch):
    """In Kubernetes the name of a pod becomes known after it has begun."""
    unknown = [socket.gaierror(socket.EAI_NONAME, "Name or service not known")] * 2
    create = socket.create_server

    def create_server(address, **options):
        if unknown:
            raise unknown.pop()
        return create(("127.0.0.1", 0), **options)

    monkeypatch.setattr(socket, "create_server", create_server)
    with pytest.raises(LaunchError, match="only 1 of 2 nodes came to pod-0"):
        nodes.Nodes(("pod-0.job", 29500), 2, 1, "").gather(timeout=2)
    assert not unknown
    unknown += [socket.gaierror(socket.EAI_NONAME, "Name or service not known")] * 9
    with pytest.raises(LaunchError, match="cannot be listened to on this host"):
        nodes.Nodes(("pod-0.job", 29500), 2, 1, "").gather(timeout=0.3)


def test_nodes_that_find_each_other_are_one_world(ddprun, endpoint):
    script = ddprun.script(WORK)
    second = start(ddprun, endpoint, 1, "-n", "1", script)  # whoever comes first waits
    first = start(ddprun, endpoint, 0, "-n", "2", script)
    (code, out, err), other = ended(first, second)
    assert (code, err, other) == (0, "", (0, "", ""))
    assert sorted(out.splitlines()) == [
        "[rank 0] total 6.0, local 0 of 2",
        "[rank 1] total 6.0, local 1 of 2",
        "[rank 2] total 6.0, local 0 of 1",
    ]
    ddprun.check_nothing_left()


@pytest.mark.full
def test_a_rank_of_another_node_is_named_with_all_stacks(ddprun, endpoint):
    script = ddprun.script("\nif rank == 1: time.sleep(0.5); os.kill(os.getpid(), signal.SIGSTOP)\nwait()\n")
    options = ["--watchdog", str(patience() + 2), "--log-dir", "run", script]
    first, second = (start(ddprun, endpoint, node, *options) for node in (0, 1))
    (code, _, err), (other, _, _) = ended(first, second)
    assert code == other == 3
    assert "ddprun: rank 1 failed (stalled); all ranks were ended." in err
    assert json.loads((ddprun.folder / "run" / "failure.json").read_text())["first"]["ranks"] == [1]
    for rank in range(2):
        assert "script.py" in (ddprun.folder / "run" / f"rank_{rank}.stacks").read_text()
    ddprun.check_nothing_left()


@pytest.mark.parametrize("killed", thinned([0, 1], 0))
def test_no_node_outlives_another(ddprun, endpoint, killed):
    script = ddprun.script("\nopen(f'ready-{rank}', 'w').close()\ntime.sleep(600)\n")
    nodes = [start(ddprun, endpoint, node, script) for node in (0, 1)]
    ddprun.wait_for("ready-*", 2)
    nodes[killed].send_signal(signal.SIGKILL)
    found = ended(*nodes)
    assert found[1 - killed][0] == 1
    if killed == 0:
        assert "lost the first node" in found[1][2]
    else:
        assert "ddprun: rank 1 failed (host node1 was lost)" in found[0][2]
    ddprun.check_nothing_left()


def test_a_signal_to_any_node_ends_the_job(ddprun, endpoint):
    script = ddprun.script("\nopen(f'ready-{rank}', 'w').close()\ntime.sleep(600)\n")
    nodes = [start(ddprun, endpoint, node, script) for node in (0, 1)]
    ddprun.wait_for("ready-*", 2)
    nodes[1].send_signal(signal.SIGTERM)
    assert [code for code, _, _ in ended(*nodes)] == [143, 143]
    ddprun.check_nothing_left()


def test_who_does_not_belong_to_the_job_is_refused(ddprun, endpoint):
    Path(ddprun.folder / "s.py").touch()
    first = start(ddprun, endpoint, 0, "--rdzv-id", "mine", "--timeout", "20", "s.py")
    other = start(ddprun, endpoint, 1, "--rdzv-id", "other", "s.py")
    [(code, _, err)] = ended(other)
    assert code == 2 and "another --rdzv-id than 'other'" in err
    host, _, port = endpoint.rpartition(":")
    with socket.create_connection((host, int(port))) as garbage:
        garbage.sendall(b"\xff" * 100_000 + b"\n")
    second = start(ddprun, endpoint, 1, "--rdzv-id", "mine", "s.py")
    assert [code for code, _, _ in ended(first, second)] == [0, 0]


def test_a_node_that_stays_away_is_waited_for_in_vain(ddprun, endpoint):
    Path(ddprun.folder / "s.py").touch()
    first = start(ddprun, endpoint, 0, "--timeout", "1", "s.py")
    [(code, _, err)] = ended(first)
    assert code == 2 and f"only 1 of 2 nodes came to {endpoint} within 1 s" in err


def test_a_job_goes_on_with_the_same_bits_without_a_node_that_is_lost(ddprun, endpoint):
    script = ddprun.script(TRAIN)
    undisturbed = results(ddprun.run("-n", "3", "--procs", "1", script, "alone", "-1").out)
    options = ["--max-restarts", "1", "--min-procs", "2", script, "checkpoints", "5"]
    nodes = [start(ddprun, endpoint, node, *options, count=3) for node in range(3)]
    ddprun.wait_for("ready-*", 3)
    nodes[1].send_signal(signal.SIGKILL)
    (code, out, err), _, (other, _, _) = ended(*nodes)
    assert code == other == 0, err
    assert "ddprun: rank 1 failed (host node1 was lost); all ranks were ended." in err
    assert "ddprun: going on without node1: 3 ranks in 2 processes on node0:1,node2:1." in err
    assert results(out) == undisturbed and len(undisturbed) == 3
    ddprun.check_nothing_left()
