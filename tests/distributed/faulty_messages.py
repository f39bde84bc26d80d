"""The last rank does something wrong while the others wait in `recv`; they report how they learn of it."""

import os
import signal
import sys
import time

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.errors import DistributedError

fault, backend = sys.argv[1], sys.argv[2]
dist.init_process_group(None if backend == "auto" else backend)
rank, size = dist.get_rank(), dist.get_world_size()
dist.barrier()
if rank == size - 1:
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "raised":
        raise ValueError("no such weather")
    if fault == "finished":
        sys.exit(0)
    if fault == "asleep":
        time.sleep(float(os.environ["DDPGRAD_TIMEOUT"]) + 4)
        sys.exit(0)
    if fault == "sent":  # what was sent before the end still arrives
        for other in range(size - 1):
            dist.send(torch.full((20_000,), 7.0), other)
        sys.exit(0)
try:
    got = torch.zeros(20_000)
    dist.recv(got, src=size - 1 if rank == 0 or fault == "sent" else None)
    print(f"[{rank}] got {got[-1].item()}", flush=True)
except DistributedError as error:
    print(f"[{rank}] {type(error).__name__}: {error}", flush=True)
    raise
