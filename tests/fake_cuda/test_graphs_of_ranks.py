"""CUDA graphs of several ranks on the stand-in: buckets over NCCL are part of a graph, others say why they are not."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.fakegpu


RANKS = """
import json, sys, warnings
import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.nn.parallel import DistributedDataParallel

captured, backend = sys.argv[1] == "captured", sys.argv[2]
dist.init_process_group(None if backend == "host" else backend)
torch.manual_seed(7)
layers = [nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 4)]
model = DistributedDataParallel(nn.Sequential(*layers).cuda(), bucket_cap_mb=0.001)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, capturable=True)

def step(x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return loss

run = torch.cuda.captured_step(step) if captured else step
torch.manual_seed(100 + dist.get_rank())
losses, told = [], []
for _ in range(7):
    x, y = torch.randn(8, 16).cuda(), torch.randint(0, 4, (8,)).cuda()
    before = sys.modules["fakecuda"].counters()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        losses.append(run(x, y))
    told += [str(warning.message) for warning in caught]
    asked = {name: n - before[name] for name, n in sys.modules["fakecuda"].counters().items()}
weights = [p.tolist() for p in model.parameters()]
print("told", json.dumps({"rank": dist.get_rank(), "bits": [[float(loss) for loss in losses], weights],
      "asked": asked, "told": told}), flush=True)
dist.destroy_process_group()
"""


def test_ranks_capture_their_buckets_over_nccl_and_say_why_they_do_not_elsewhere(tmp_path: Path):
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)

    def ranks(*arguments: str) -> list[dict[str, Any]]:
        command = [
            sys.executable,
            "-m",
            "ddpgrad.launcher",
            "-n",
            "2",
            "--procs",
            "2",
            str(program),
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        found = [json.loads(text) for text in re.findall(r"told (\{.*\})", done.stdout)]
        return sorted(found, key=lambda row: row["rank"])

    eager, captured, staged = ranks("eager", "nccl"), ranks("captured", "nccl"), ranks("captured", "host")
    assert (
        [row["bits"] for row in captured] == [row["bits"] for row in staged] == [row["bits"] for row in eager]
    )
    for row in captured:
        assert row["asked"]["graph_launches"] == 1 and row["asked"]["launches"] == 0, row["asked"]
        assert row["told"] == [] and row["asked"]["synchronisations"] == 0
    for row in staged:
        assert len(row["told"]) == 1 and "host memory" in row["told"][0], row["told"]
        assert row["asked"]["graph_launches"] == 0
