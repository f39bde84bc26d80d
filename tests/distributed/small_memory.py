"""A host with 100,000 bytes of shared memory: prints the transport that is taken, or why none is."""

import sys

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.distributed.transports.shm import segments
from ddpgrad.errors import TransportError

segments.available = lambda: 100_000
try:
    dist.init_process_group(sys.argv[1])
except TransportError as error:
    print(f"refused: {error}", flush=True)
else:
    total = torch.ones(3)
    dist.all_reduce(total)
    print(f"taken: {dist.get_backend()} {total.tolist()}", flush=True)
