"""What ranks do together because one of them has to: `ddprun -n 2 examples/features/one_decision.py`.

Rank 0 prepares the data for all and names the run; the last rank meets a NaN, and all leave out that step; rank 0 has seen
enough, and all stop.
"""

import shutil
import tempfile
from pathlib import Path

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.nn.parallel import DistributedDataParallel

dist.init_process_group()
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
file = Path(dist.on_rank_zero(tempfile.mkdtemp)) / "data.pt"
with dist.rank_zero_first():
    if not file.exists():  # so on rank 0, as on all ranks of one host the folder is the same
        torch.save(torch.randn(ranks * 8, 6), file)
    x = torch.load(file).chunk(ranks)[rank]

model = DistributedDataParallel(nn.Linear(6, 1), nonfinite_gradients="skip")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = 0
for step in range(100):
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    (loss * float("nan") if step == 3 and rank == ranks - 1 else loss).backward()
    optimizer.step()
    steps += all(p.grad is not None for p in model.parameters())
    if dist.agree(rank == 0 and loss.item() < 0.1):
        break

if rank == 0:
    print(model.explain())
    print(f"stopped after {step + 1} steps, of which {step + 1 - steps} was left out")
dist.on_rank_zero(lambda: shutil.rmtree(file.parent))
dist.destroy_process_group()
