"""A small training job that can break at any point: train.py [PHASE RANK ACTION].

ACTION, Python source, runs in the first attempt when RANK is in PHASE of step 3. Rank 0 ends by
printing what a disturbed run must give, too: losses, the order of the samples, the parameters.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import signal  # noqa: F401  for ACTION
import sys
import time  # noqa: F401  for ACTION

PHASE, WHO, ACTION = sys.argv[1:4] if len(sys.argv) > 1 else ("", "-1", "")
STEP = 3
step = -1


def at(phase: str) -> None:
    """The job is in `phase` now."""
    here = os.environ["RANK"] == WHO and os.environ["DDPRUN_RESTART_COUNT"] == "0"
    if phase == PHASE and here and step in (-1, STEP):
        exec(ACTION, globals())


with open(f"left-{os.getpid()}", "w") as note:
    note.write(os.environ["DDPGRAD_JOB"])
at("import")

import ddpgrad as torch  # noqa: E402
import ddpgrad.distributed as dist  # noqa: E402
from ddpgrad import nn  # noqa: E402
from ddpgrad.launcher import Checkpointer  # noqa: E402
from ddpgrad.nn.parallel import DistributedDataParallel  # noqa: E402
from ddpgrad.utils.data import DataLoader, DistributedSampler, TensorDataset  # noqa: E402

at("init")
dist.init_process_group()
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
ddp = DistributedDataParallel(model, bucket_cap_mb=0.01)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(64, 8), torch.arange(64))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=5))
torch.manual_seed(dist.get_rank())
model[2].register_forward_hook(lambda *_: at("forward"))
# The gradient of the last layer comes first, that of the first layer last, when buckets are under way.
model[4].weight.register_hook(lambda _: at("backward"))
model[0].weight.register_hook(lambda _: at("mid-bucket"))
optimizer.register_step_pre_hook(lambda *_: at("optimizer"))
atexit.register(at, "shutdown")

checkpoints = Checkpointer("checkpoints", every=2)


class Order:
    """The samples that this rank has read."""

    state_is_per_rank = True

    def __init__(self) -> None:
        self.read: list[list[int]] = []

    def state_dict(self) -> list[list[int]]:
        return self.read

    def load_state_dict(self, read: list[list[int]]) -> None:
        self.read = read


losses: list[float] = []
order = Order()
state = {"model": model, "optimizer": optimizer, "loader": loader, "losses": losses, "order": order}
step = checkpoints.resume(**state) or 0
replace = os.replace
os.replace = lambda *paths: (at("save"), replace(*paths))[1]
while step < 8:
    for x, which in loader:
        loss = (ddp(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
        order.read.append(which.tolist())
        at("step")
        if os.environ["RANK"] != "0":
            at("save")
        checkpoints.step(step, **state)
        with open(f"ready-{dist.get_rank()}", "w"):
            step += 1
        if step == 8:
            break
orders: list = [None] * dist.get_world_size()
dist.all_gather_object(orders, order.read)
if dist.get_rank() == 0:
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    print("result", json.dumps([losses, orders, digest.hexdigest()]))
step = -1
