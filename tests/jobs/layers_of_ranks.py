"""SyncBatchNorm, ZeroRedundancyOptimizer and uneven batches in one training; rank 0 prints a hash of the model.

Started by `test_proof.py` with one world size and several numbers of processes.
"""

import hashlib

import numpy as np

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.optim import ZeroRedundancyOptimizer
from ddpgrad.nn.parallel import DistributedDataParallel

dist.init_process_group()
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(40, 60), nn.BatchNorm1d(60), nn.ReLU(), nn.Linear(60, 5))
ddp = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
torch.manual_seed(rank)
for _ in range(5):
    optimizer.zero_grad()
    F.cross_entropy(ddp(torch.randn(6, 40)), torch.randint(0, 5, (6,))).backward()
    optimizer.step()
plain = nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 5))
uneven = DistributedDataParallel(plain)
optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
with uneven.join():
    for _ in range(1 + rank):
        optimizer.zero_grad()
        F.cross_entropy(uneven(torch.randn(6, 40)), torch.randint(0, 5, (6,))).backward()
        optimizer.step()
digest = hashlib.sha256()
for tensor in [*model.state_dict().values(), *plain.state_dict().values()]:
    digest.update(np.ascontiguousarray(tensor.numpy()).tobytes())
hashes: list[str] = [""] * dist.get_world_size()
dist.all_gather_object(hashes, digest.hexdigest())
assert len(set(hashes)) == 1, "the replicas differ"
if rank == 0:
    print(f"model {hashes[0]}", flush=True)
dist.destroy_process_group()
