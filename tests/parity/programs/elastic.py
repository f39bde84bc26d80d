"""A job that loses a rank and goes on from its checkpoint, as torchrun's users write it.

elastic.py FOLDER FOUND [--undisturbed]
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP


@record
def main() -> None:
    dist.init_process_group("gloo")
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    path = Path(sys.argv[1]) / "state.pt"
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    first, losses = 0, []
    if path.exists():
        state = torch.load(path, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, losses = state["step"], state["losses"]
    for step in range(first, 6):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(10 * step + rank))
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach()
        dist.all_reduce(total)
        losses.append(total.item())
        if rank == 0 and step % 2 == 1:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step + 1,
                "losses": losses,
            }
            torch.save(state, path.with_suffix(".new"))
            os.replace(path.with_suffix(".new"), path)
        dist.barrier()
        if attempt == 0 and rank == 1 and step == 2 and "--undisturbed" not in sys.argv:
            raise RuntimeError("lost on purpose")
    if rank == 0:
        Path(sys.argv[2]).write_text(json.dumps({"attempt": [attempt, first], "losses": losses}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
