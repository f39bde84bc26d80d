"""Ranks that torchrun, accelerate and Ray start: on two hosts, which are network namespaces with memory of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from started_by_hand import LIMIT_S

from ddpgrad.launcher.job import mpi

sys.path.append(str(Path(__file__).parents[2] / "cluster"))

import namespaces

pytestmark = pytest.mark.torch

TRAIN = """
import json, os
import ddpgrad as torch, ddpgrad.distributed as dist
from ddpgrad.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(3, 1))
model(torch.full((2, 3), rank + 1.0)).sum().backward()
found = [dist.get_world_size(), dist.get_node_local_rank(), model.module.weight.grad.tolist()]
transport = dist.distributed_c10d._get_default_group().communicator.transport
with open(f"{os.environ['FOUND']}/{rank}", "w") as file: json.dump([*found, transport], file)
"""

# As it is typed on host K, with what differs by host in braces.
STARTERS = {
    "torch": "torch.distributed.run --nnodes 2 --nproc-per-node 2 --node-rank {host} --master-addr {first} "
    "--master-port 29500",
    "accelerate": "accelerate.commands.launch --multi_gpu --num_machines 2 --num_processes 4 --machine_rank {host} "
    "--main_process_ip {first} --main_process_port 29500 --mixed_precision no --dynamo_backend no",
}


@pytest.fixture(scope="module")
def hosts(request: pytest.FixtureRequest) -> Iterator[namespaces.Run]:
    if reason := namespaces.why_not():
        pytest.skip(reason)
    with namespaces.hosts(2) as run:
        yield run


@pytest.mark.netns
@pytest.mark.parametrize("package", STARTERS)
def test_ranks_of_two_hosts_are_one_world(hosts, package, tmp_path, mpiexec):
    pytest.importorskip(package)
    if mpi.flavour(mpiexec) == "openmpi":
        pytest.skip("Open MPI does not join processes that no mpiexec started")
    (tmp_path / "train.py").write_text(TRAIN)
    environment = (
        os.environ | namespaces.NETWORK_VARIABLES | {"FOUND": str(tmp_path), "GLOO_SOCKET_IFNAME": "eth0"}
    )
    started = []
    for number, address in enumerate(hosts.addresses):
        words = STARTERS[package].format(host=number, first=hosts.addresses[0])
        own_memory = f"mount -t tmpfs tmpfs /dev/shm && exec {sys.executable} -m {words} train.py"
        command = ["ip", "netns", "exec", hosts.namespace(address), "unshare", "-m", "sh", "-c", own_memory]
        started.append(
            subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, stderr=subprocess.PIPE)
        )
    for process in started:
        _, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, err
    said = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(4)]
    # The mean over the ranks of 2 * (rank + 1).
    assert said == [[4, rank % 2, [[5.0, 5.0, 5.0]], "hierarchical"] for rank in range(4)]


def test_actors_of_ray_are_ranks(tmp_path):
    pytest.importorskip("ray")
    program = Path(__file__).parents[2] / "examples" / "ray_actors.py"
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "replicas bit-identical" in done.stdout
