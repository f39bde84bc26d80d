"""Ranks that no launcher of ours started meet as PyTorch's do."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent

import pytest
from patience import patience
from started_by_hand import LIMIT_S, ended, free_port

from ddpgrad.launcher.job import mpi

sys.path.append(str(Path(__file__).parents[2] / "cluster"))

import namespaces

TRAIN = """
from ddpgrad.nn.parallel import DistributedDataParallel
torch.manual_seed(int(os.environ["RANK"]))
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(3, 1))
model(torch.full((2, 3), dist.get_rank() + 1.0)).sum().backward()
print(json.dumps([
    dist.get_rank(), dist.get_world_size(), model.module.weight.grad.tolist(), model.module.weight.sum().item(),
    dist.get_node_local_rank(), dist.is_torchelastic_launched(),
]))
"""


def test_the_environment_is_enough(program):
    """Also torchrun's: LOCAL_RANK is what it says."""
    program.write(TRAIN)
    plain = program.ranks(2)
    assert [one[:3] for one in plain] == [[rank, 2, [[3.0, 3.0, 3.0]]] for rank in range(2)]
    assert plain[0][3] == plain[1][3]
    assert [one[4:] for one in plain] == [[0, False], [1, False]]
    elastic = program.ranks(2, TORCHELASTIC_RUN_ID="x", TORCHELASTIC_RESTART_COUNT=1, LOCAL_RANK=0, OMPI_COMM_WORLD_RANK=0,
                            OMPI_COMM_WORLD_SIZE=2)  # fmt: skip
    assert [one[4:] for one in elastic] == [[0, True], [0, True]]


@pytest.mark.parametrize("by", [{"TORCHELASTIC_RUN_ID": "x"}, {}], ids=["torchrun", "a shell"])
def test_others_may_start_ddpgrads_run_which_then_is_no_launcher(program, by):
    """`torchrun --no-python python -m ddpgrad.run --as-torch train.py`: not a job of one rank for each worker.

    Processes that a rank starts, such as workers of a DataLoader, find the same torch.
    """
    loads = "assert [*map(len, torch.utils.data.DataLoader([1, 2, 3], 2, num_workers=1))] == [2, 1]"
    program.write(f"import torch.nn\nif __name__ == '__main__':\n{indent(loads + TRAIN, '    ')}")
    run = ["-m", "ddpgrad.run", "--as-torch"]
    each = [{"RANK": r, "WORLD_SIZE": 2, "LOCAL_RANK": r, **by} for r in range(2)]
    started = [program.start(one, options=run) for one in each]
    assert [json.loads(out)[:3] for out, _ in ended(started)] == [
        [rank, 2, [[3.0, 3.0, 3.0]]] for rank in range(2)
    ]
    start = program.start(each[0], options=[*run, "-n", "2"])
    if not by:  # RANK and WORLD_SIZE may be left from another program, as torchrun takes them
        [(out, _)] = ended([start])
        assert sorted(json.loads(line.partition("] ")[2])[:2] for line in out.splitlines()) == [
            [0, 2],
            [1, 2],
        ]
        return
    [(_, err)] = ended([start], 2)
    assert "torchrun has started 2 of this ddprun (WORLD_SIZE=2)" in err
    assert "`torchrun --no-python --nproc-per-node 2 python" in err


TRACED = """
from ddpgrad.distributed import trace
with trace.recording(os.path.join(os.path.dirname(__file__), "traced")):
    dist.init_process_group("gloo")
    dist.barrier()
print(json.dumps(dist.get_rank()))
"""


def test_each_records_its_own_file(program, tmp_path):
    program.write(TRACED)
    assert program.ranks(2) == [0, 1]
    folder = next(tmp_path.rglob("traced"))
    assert sorted(path.name for path in folder.iterdir()) == ["timeline-0.jsonl", "timeline-1.jsonl"]


EVERY_WAY = """
from datetime import timedelta
rank, port, folder = int(os.environ.pop("RANK")), int(os.environ.pop("MASTER_PORT")), os.path.dirname(__file__)
del os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"]
who = {"rank": rank, "world_size": 2}
address = f"tcp://127.0.0.1:{port}"
sums = []

def met(**how):
    dist.init_process_group("gloo", timeout=timedelta(seconds=120), **how)
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    sums.append([dist.get_rank(), dist.get_world_size(), total.item()])
    dist.destroy_process_group()
    assert not dist.is_initialized()

met(init_method=address, **who)
met(init_method=f"{address}?rank={rank}&world_size=2")
met(init_method=f"file://{folder}/meeting", **who)
assert not os.path.exists(f"{folder}/meeting")
store = dist.TCPStore("127.0.0.1", int(os.environ["OTHER_PORT"]), 2, rank == 0, timedelta(seconds=120))
met(store=store, **who)
met(store=dist.PrefixStore("again", store), **who)
met(store=dist.FileStore(f"{folder}/store", 2), **who)
os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
met(**who)
os.environ |= {"RANK": str(1 - rank), "WORLD_SIZE": "2"}
rank = 1 - rank
met(init_method="env://")
print(json.dumps(sums))
"""


def test_every_way_to_meet_one_after_the_other(program):
    """So each `init_process_group` starts afresh, at another place or at the same."""
    program.write(EVERY_WAY)
    first, second = program.ranks(2, OTHER_PORT=free_port())
    assert first == [[0, 2, 3.0]] * 7 + [[1, 2, 3.0]]
    assert second == [[1, 2, 3.0]] * 7 + [[0, 2, 3.0]]


TURNED = """
import time
dist.init_process_group("gloo", timeout=120)
rank, waiting = dist.get_rank(), f"{os.path.dirname(__file__)}/waiting"
if rank == 0:
    while not all(os.path.exists(f"{waiting}{other}") for other in (1, 2)): time.sleep(0.01)
    time.sleep(0.3)
dist.destroy_process_group()
open(f"{waiting}{rank}", "w").close()
dist.init_process_group("gloo", rank=(rank + 1) % 3, world_size=3, timeout=120)
print(json.dumps([rank, dist.get_rank()]))
"""


def test_ranks_that_change_their_numbers_wait_until_the_world_before_is_left_by_all(program):
    program.write(TURNED)
    assert program.ranks(3) == [[0, 1], [1, 2], [2, 0]]


AFTER_FAILURE = """
from ddpgrad.core.errors import StallError
dist.init_process_group("gloo", timeout=1.0)
try:
    if dist.get_rank() == 0: dist.barrier()
    else: __import__("time").sleep(3)
except StallError:
    print("stalled", file=sys.stderr)
dist.destroy_process_group()
dist.init_process_group("gloo", timeout=120)
dist.barrier()
print(json.dumps([dist.get_rank()]))
"""


def test_ranks_meet_afresh_after_a_barrier_that_failed(program):
    program.write(AFTER_FAILURE)
    assert program.ranks(2) == [[0], [1]]


SPAWNED = """
import ddpgrad.multiprocessing as mp
from ddpgrad.core.errors import RankFailedError

def work(i, node):
    dist.init_process_group("gloo", init_method=os.environ["WHERE"], rank=2 * node + i, world_size=4)
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    assert total.item() == 10.0

def by_hand(rank, size, method):
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": os.environ["PORT"]}
    if "SAID" in os.environ: os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
    dist.init_process_group("gloo", **({} if "SAID" in os.environ else {"rank": rank, "world_size": size}))
    dist.barrier()
    assert dist.get_world_size() == size
    if rank == 1: raise ValueError("on purpose")
    dist.barrier()

if __name__ == "__main__":
    if "NODE" in os.environ:
        mp.spawn(work, args=(int(os.environ["NODE"]),), nprocs=2)
    else:
        ranks = [mp.get_context(os.environ["HOW"]).Process(target=by_hand, args=(r, 2, "")) for r in range(2)]
        for one in ranks: one.start()
        for one in ranks: one.join()
        print(json.dumps([one.exitcode for one in ranks]))
"""


def test_spawn_on_each_node_makes_one_world(program):
    """As PyTorch's ImageNet example starts its ranks: `mp.spawn` once a node, with numbers of its own."""
    program.write(SPAWNED)
    where = f"tcp://127.0.0.1:{free_port()}"
    del program.meeting["MASTER_ADDR"], program.meeting["MASTER_PORT"]
    ended([program.start({"NODE": node, "WHERE": where}) for node in range(2)])


@pytest.mark.parametrize("how", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_processes_of_multiprocessing_are_ranks_and_say_why_they_end(program, how):
    program.write(SPAWNED)
    del program.meeting["MASTER_ADDR"], program.meeting["MASTER_PORT"]
    [(out, err)] = ended([program.start({"HOW": how, "PORT": free_port()})])
    assert all(json.loads(out)), err
    assert "ddpgrad: rank 1 failed (exit code 1); all ranks were ended." in err
    assert "ValueError: on purpose" in err


def test_the_environment_counts_without_init_process_group(program):
    """The first who asks which rank this is meets the others: it never is rank 0 of 1."""
    program.write("from ddpgrad.distributed.ranks import host\nprint(json.dumps(host.current().world_size))")
    assert program.ranks(2) == [2, 2]


@pytest.mark.torch
def test_torchrun_starts_ranks(program, tmp_path):
    """Its agent serves PyTorch's own store at MASTER_PORT; also after a restart, and at once again."""
    program.write("""
dist.init_process_group("gloo")
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1: sys.exit(3)
dist.barrier()
dist.destroy_process_group()
dist.init_process_group("gloo")
dist.barrier()
open(f"{os.path.dirname(__file__)}/done-{dist.get_rank()}", "w").close()
""")
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    ended([program.start({}, options=torchrun)])
    assert sorted(path.name for path in tmp_path.glob("done-*")) == ["done-0", "done-1"]


HOST = "mount -t tmpfs tmpfs /dev/shm && echo there && exec cat"
SEVERAL = """
dist.init_process_group("gloo", timeout=float(os.environ["PATIENCE"]))
x = torch.arange(20000.0) * (dist.get_rank() + 1)
dist.all_reduce(x)
if "FAULT" in os.environ:
    if dist.get_rank() == 1: exec(os.environ["FAULT"])
    dist.barrier()
for _ in range(2):
    dist.destroy_process_group()
    dist.init_process_group()
transport = dist.distributed_c10d._get_default_group().communicator.transport
print(json.dumps([dist.get_rank(), x[-1].item(), dist.get_node_local_rank(), transport]))
"""


@pytest.fixture
def two_hosts(program) -> Iterator[Callable[..., list[subprocess.Popen[str]]]]:
    """Starts four ranks on two hosts: processes that do not share memory are on different ones."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    pytest.importorskip("mpi4py")
    program.write(SEVERAL)
    # A process holds the memory of each host.
    holders = [
        subprocess.Popen(["unshare", "-m", "sh", "-c", HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]

    def run(**variables: object) -> list[subprocess.Popen[str]]:
        each = {"WORLD_SIZE": 4, "PATIENCE": 4 * patience(), **namespaces.NETWORK_VARIABLES, **variables}
        enter = [["nsenter", "-m", "-t", str(holder.pid)] for holder in holders]
        return [program.start({"RANK": rank, **each}, enter[rank // 2]) for rank in range(4)]

    try:
        if not all(holder.stdout.readline() for holder in holders):
            pytest.skip("no file systems can be mounted here")
        yield run
    finally:
        for holder in holders:
            holder.communicate()


def test_ranks_of_several_hosts_begin_mpi_together(two_hosts, mpiexec):
    """Or, where Open MPI is installed, which cannot, are told what can."""
    if mpi.flavour(mpiexec) == "openmpi":
        for _, err in ended(two_hosts(), code=1):
            assert "the 4 ranks run on 2 hosts" in err and "`ddprun -n 4 --hosts" in err, err
        return
    said = [json.loads(out) for out, _ in ended(two_hosts())]
    assert said == [[rank, 199990.0, rank % 2, "hierarchical"] for rank in range(4)]


@pytest.mark.full
def test_a_rank_that_is_killed_ends_those_of_all_hosts(two_hosts, mpiexec):
    if mpi.flavour(mpiexec) == "openmpi":
        pytest.skip("Open MPI does not join processes that no mpiexec started")
    started = two_hosts(FAULT="os.kill(os.getpid(), 9)")
    said = [process.communicate(timeout=LIMIT_S)[1] for process in started]
    assert [process.returncode == 0 for process in started] == [False] * 4
    assert any("ddpgrad: rank 1 failed (ended before its script was finished)" in err for err in said), said
    assert any("rank 1 died without a word" in err for err in said), said


@pytest.mark.parametrize("how", ["fork", "spawn"])
@pytest.mark.parametrize("said", [{}, {"SAID": 1}], ids=["arguments", "environment"])
def test_processes_that_the_only_rank_of_a_job_starts_are_ranks_of_a_world_of_their_own(program, how, said):
    """As tests of libraries start theirs, whatever started the tests."""
    program.write(SPAWNED)
    variables = {"HOW": how, "PORT": free_port(), **said}
    [(out, err)] = ended([program.start(variables, options=["-m", "ddpgrad.run"])])
    assert all(json.loads(out)), err
    assert "ValueError: on purpose" in err


OF_TWO_JOBS = """
who = {"rank": int(os.environ.pop("ME")), "world_size": 2}
place = {"init_method": os.environ["WHERE"], **who} if "WHERE" in os.environ else {}
if not place: os.environ |= {"RANK": str(who["rank"]), "WORLD_SIZE": "2", "MASTER_PORT": os.environ["PORT"]}
dist.init_process_group("gloo", **place)
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
print(json.dumps([dist.get_rank(), dist.get_world_size(), total.item()]))
"""


@pytest.mark.parametrize("by", ["arguments", "environment"])
def test_the_only_ranks_of_two_jobs_meet_where_their_program_says(program, by):
    program.write(OF_TWO_JOBS)
    port = free_port()
    where = {"WHERE": f"tcp://127.0.0.1:{port}"} if by == "arguments" else {"PORT": port}
    started = [program.start({"ME": rank, **where}, options=["-m", "ddpgrad.run"]) for rank in range(2)]
    assert [json.loads(out) for out, _ in ended(started)] == [[0, 2, 3.0], [1, 2, 3.0]]


def test_a_rank_of_several_is_of_no_other_world(program):
    program.write(
        """dist.init_process_group("gloo", init_method="tcp://127.0.0.1:9", rank=0, world_size=3)"""
    )
    [(_, err)] = ended([program.start({}, options=["-m", "ddpgrad.run", "-n", "2"])], 1)
    assert "the launcher says world_size 2" in err
