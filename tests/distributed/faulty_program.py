"""A program in which the last rank does something wrong; the others report how they learn of it."""

import os
import signal
import sys
import time

import contract
import numpy as np

from ddpgrad.distributed.ranks import host
from ddpgrad.errors import DistributedError

fault, backend = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
if len(sys.argv) > 3:
    contract.pretend_hosts(int(sys.argv[3]))
member = host.current()
communicator = member.communicator(backend)
wrong = member.rank == member.world_size - 1

communicator.all_reduce(np.ones(3))
try:
    if wrong and fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if wrong and fault == "vanished":
        os._exit(0)
    if wrong and fault == "raised":
        raise ValueError("no such weather")
    if wrong and fault == "finished":
        sys.exit(0)
    if wrong and fault == "asleep":
        time.sleep(float(os.environ["DDPGRAD_TIMEOUT"]) + 4)
    communicator.all_reduce(np.ones(100_000, np.float32), label="fc1.weight")
except DistributedError as error:
    print(f"[{member.rank}] {type(error).__name__}: {error}", flush=True)
    try:
        communicator.barrier()
    except DistributedError as second:
        assert str(second) == str(error), "the first error must stay"
    raise
