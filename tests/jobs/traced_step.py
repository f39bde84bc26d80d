"""One training step of a small model; rank 0 prints every function of this package that it calls, in order of first calls.

Started by `test_docs.py`, which compares the order with the one that README and the design page give.
"""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.nn.parallel import DistributedDataParallel

ROOT = Path(torch.__file__).parent
called: dict[str, None] = {}


def note(frame: FrameType, event: str, argument: Any) -> None:
    code = frame.f_code
    if event == "call" and Path(code.co_filename).is_relative_to(ROOT):
        called.setdefault(f"{Path(code.co_filename).relative_to(ROOT)} {code.co_qualname}")


dist.init_process_group()
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
optimizer = torch.optim.AdamW(model.parameters())
x, y = torch.randn(16, 4), torch.randint(0, 3, (16,))
for step in range(3):  # buckets and flat memory are laid out in the first two
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    if step == 2:
        sys.setprofile(note)
    loss.backward()
    optimizer.step()
sys.setprofile(None)
if dist.get_rank() == 0:
    print(*called, sep="\n")
dist.destroy_process_group()
