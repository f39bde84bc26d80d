"""Runs all programs as one rank of two, and writes what rank 0 found.

ddprun -n 2 --as-torch main.py FILE          the ranks are there
torchrun --nproc-per-node 2 main.py FILE     the environment says where they meet
python main.py FILE --spawn                  the program starts them
"""

import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
if os.environ.get("SERVED_BY_DDPGRAD"):
    from ddpgrad.launcher import as_torch

    as_torch.install()

import by_hand
import data_parallel
import torch.distributed as dist
import torch.multiprocessing as mp


def rank(number: int, path: str, place: str | None) -> None:
    if place is None:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", init_method=f"file://{place}", rank=number, world_size=2)
    found = {}
    for program in data_parallel.PROGRAMS + by_hand.PROGRAMS:
        found[program.__name__] = program()
        dist.barrier()
    if dist.get_rank() == 0:
        Path(path).write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    if "--spawn" in sys.argv:
        mp.spawn(rank, (sys.argv[1], os.path.join(tempfile.mkdtemp(), "meet")), nprocs=2)
    else:
        rank(-1, sys.argv[1], None)
