"""One run on machines of any size: `ddprun -n 1`, `-n 2`, `-n 4` or `-n 8 examples/features/accumulate.py` end with the same bits.

A step always has 8 micro-batches. Each has its own samples and dropout, and its place in the sum, wherever it is computed.
"""

import zlib

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.nn.parallel import DistributedDataParallel
from ddpgrad.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group()
k = 8 // dist.get_world_size()
torch.manual_seed(0)
layers = [nn.Linear(16, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 8)]
model = DistributedDataParallel(nn.Sequential(*layers))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(256, 16), torch.randint(0, 8, (256,)))
loader = DataLoader(data, batch_size=4 * k, sampler=DistributedSampler(data, accumulate=k), drop_last=True)

for _ in range(5):
    for x, y in loader:
        optimizer.zero_grad()
        for part, target in model.accumulate(k, x, y):
            F.cross_entropy(model(part), target).backward()
        optimizer.step()

if dist.get_rank() == 0:
    bits = b"".join(t.numpy().tobytes() for t in model.state_dict().values())
    print(f"weights and running statistics {zlib.crc32(bits):08x}")
dist.destroy_process_group()
