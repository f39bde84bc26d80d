"""Ranks that differ in model, options or software get an error that names both, before data moves."""

import re

import pytest
from matrices import thinned

# Rank 1 of three differs in one thing; then all train two steps.
SCRIPT = """\
import os
open(f"left-{os.getpid()}", "w").write(os.environ["DDPGRAD_JOB"])
import numpy as np
other = os.environ["RANK"] == "1"
if other:
    pass
    EARLY
import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
dist.init_process_group()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
lr, options = 0.1, {}
MODEL
ddp = nn.parallel.DistributedDataParallel(model, check_replicas_every=1, **options)
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
for step in range(3):
    ddp(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("place", "change", "said"),
    thinned([
        ("MODEL", "if other: model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))", "the models differ in parameter '1.weight'"),
        ("MODEL", "if other: options = {'bucket_cap_mb': 1e-5}", "bucket_cap_mb=1e-05 on rank 1"),
        ("MODEL", "if other: options = {'find_unused_parameters': True}", "find_unused_parameters=True on rank 1"),
        ("MODEL", "if other: lr = 0.2", "the replicas have drifted apart: after step 1, parameter '0.weight' of rank 1"),
        ("EARLY", "np.__version__ = '0.1'", r"NumPy 0\.1, Python"),
        ("EARLY", "import ddpgrad.distributed.process_group as p; p.__version__ = '9.9'", r"with ddpgrad 9\.9, NumPy"),
        ("EARLY", "os.environ['DDPGRAD_NUMBA'] = '1'", "with Numba"),
    ], ("MODEL", "if other: lr = 0.2"), ("EARLY", "np.__version__ = '0.1'")),
    ids=["model", "bucket size", "unused", "learning rate", "NumPy", "ddpgrad", "kernels"],
)  # fmt: skip
def test_a_rank_that_differs_is_refused_by_name(ddprun, place, change, said):
    body = SCRIPT.replace(place, change)
    for other in ("EARLY", "MODEL"):
        body = body.replace(other, "pass" if other == "EARLY" else "")
    modes = () if place == "EARLY" else ("--debug",)  # what a process is, two of them may differ in
    result = ddprun.run("-n", "3", *modes, ddprun.script(body, prelude=""))
    assert result.code == 4, result.err
    assert "ddprun: rank 1 failed (exit code 1); all ranks were ended." in result.said
    assert re.search(said, "\n".join(result.said)), result.err
    assert len(result.said) <= 25
