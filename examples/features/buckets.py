"""Where a step's communication goes, and what other buckets would give: `ddprun -n 2 examples/features/buckets.py`.

`explain` tells of each bucket of gradients when it was ready, handed over and averaged, and replays these times for other
sizes. `bucket_cap_mb="auto"` does that once, after some steps, and lays the buckets out anew: the bits stay.
"""

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.nn.parallel import DistributedDataParallel

dist.init_process_group()
rank, ranks = dist.get_rank(), dist.get_world_size()


def train(**options: object) -> tuple[DistributedDataParallel, float]:
    """A model after 30 steps, and the sum of its parameters."""
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers), **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32 * ranks, 256).chunk(ranks)[rank]
    for _ in range(30):
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()
    return model, sum(p.double().sum().item() for p in model.parameters())


model, usual = train()
told = model.explain(collective=True)  # measures some all-reduces; without, one rank may ask
_, chosen = train(bucket_cap_mb="auto")
if rank == 0:
    print(told)
    print(f"the same bits with other buckets: {usual == chosen}")
dist.destroy_process_group()
