"""What ranks on GPUs do, as a program; prints a digest of a model that they have trained, and what backend carried it.

on_gpus.py BACKEND
"""

import hashlib
import sys
import threading
import time

import numpy as np

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import distributed as dist
from ddpgrad import nn


def trained() -> str:
    """The digest of a model after some steps, with buckets small enough that there are several."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 3))
    model = nn.parallel.DistributedDataParallel(layers.cuda(), bucket_cap_mb=0.004)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(4):
        x, y = torch.randn(8, 20, generator=generator), torch.randint(0, 3, (8,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
    arrays = [np.ascontiguousarray(p.detach().cpu().numpy()) for p in model.parameters()]
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()


def begin_without_waiting() -> None:
    """A collective that the ranks have agreed on before begins where it is called, whenever the others come to it."""
    from ddpgrad.distributed.transports.nccl import NcclTransport

    x, carry = torch.ones(1000, device="cuda"), NcclTransport._carry
    for late in (0.0, 2.0):
        if late and dist.get_rank() == 1:
            time.sleep(late)
        began = time.monotonic()
        work = dist.all_reduce(x, async_op=True)
        waited = time.monotonic() - began
        assert work is not None
        work.wait()
        assert (x == dist.get_world_size()).all()
        NcclTransport._carry = lambda self, call: None  # NCCL's own time left out
    NcclTransport._carry = carry
    assert waited < 1.0, f"all_reduce waited {waited:.1f} s for the other ranks"


def wait_in_a_thread() -> None:
    """A new thread of CuPy's is on the first GPU, whichever is the rank's: what waits is the rank's stream."""
    x = torch.ones(1000, device="cuda")
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    thread = threading.Thread(target=work.wait)
    thread.start()
    thread.join()
    assert (x == dist.get_world_size()).all()


if __name__ == "__main__":
    dist.init_process_group(sys.argv[1])
    sys.stdout.write(f"digest {trained()} by {dist.get_backend()}\n")
    if sys.argv[1] == "nccl":
        begin_without_waiting()
        wait_in_a_thread()
    dist.destroy_process_group()
