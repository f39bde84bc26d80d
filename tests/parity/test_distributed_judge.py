"""PyTorch's own tests of distributed programs, on processes that meet by themselves: all pass but those with a reason."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from distributed_reasons import LEFT_OUT

# (ranks, backend, names, how many pass at least). The CPU stands for GPUs, which most tests of data parallelism ask for.
RUNS = [
    (3, "gloo", [], 170),
    (3, "mpi", ["test_all_to_all*"], 12),  # which PyTorch has on the CPU for MPI only
    (3, "nccl", ["*_cuda*", "*nccl*", "test_batch_isend_irecv*"], 35),
    (4, "gloo", ["test_new_subgroups*", "test_gather_object*", "*hierarchical_sgd*"], 11),
    (
        2,
        "gloo",
        ["test_ddp_device_mesh*", "test_send_recv*", "test_barrier*", "test_all_gather*", "test_ddp_ignore*"],
        24,
    ),
]
# Why PyTorch leaves a test out. What needs another number of ranks, or another backend, is in another run.
SKIPPED = re.compile(
    r"world size|odd world|Only MPI|Only N[Cc]|NCCL|nccl|GLOO Batch|Only Gloo|Requires file://|flak|issues/|pull/|internal CI"
)


@pytest.mark.parametrize(("ranks", "backend", "names", "passes"), RUNS)
def test_passes(ranks: int, backend: str, names: list[str], passes: int, tmp_path: Path):
    judge = Path(__file__).with_name("distributed_judge.py")
    command = [sys.executable, str(judge), "--gpus", "--world", str(ranks), "--backend", backend]
    done = subprocess.run(
        [*command, "--json", str(tmp_path / "found"), *names], capture_output=True, text=True, timeout=900
    )
    found = json.loads((tmp_path / "found").read_text())
    failed = {name: why for name, (what, why) in found.items() if what == "failed"}
    assert not failed, f"{failed}\n{done.stderr[-4000:]}"
    skipped = {name: why for name, (what, why) in found.items() if what == "skipped"}
    assert {name: why for name, why in skipped.items() if not SKIPPED.search(why)} == {}
    assert len(found) - len(skipped) >= passes
    assert not found.keys() & LEFT_OUT.keys()
