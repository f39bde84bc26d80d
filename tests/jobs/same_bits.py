"""A small training job, with dropout and a shuffled loader, that prints its bits.

Started by `fake_cuda/test_training.py` in several ways; every rank prints nothing but rank 0, which
prints one JSON object: the loss of each step in hexadecimal and the hash of all parameters.
"""

import argparse
import hashlib
import json

import numpy as np

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.launcher import Checkpointer
from ddpgrad.nn.parallel import DistributedDataParallel
from ddpgrad.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    """An embedding, causal attention, a perceptron with dropout: what the GPT is made of."""

    def __init__(self, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.table = nn.Embedding(64, width)
        self.norm = nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.table(x)
        b, t, c = h.shape
        q, k, v = (
            self.qkv(self.norm(h)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        h = h + self.drop(self.proj(a))
        h = h + self.drop(self.down(F.gelu(self.up(h))))
        return F.linear(h, self.table.weight)


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--checkpoints", required=True)
    p.add_argument("--steps", type=int, default=30)
    p.add_argument("--stop-after", type=int)
    p.add_argument("--resume", action="store_true")
    p.add_argument("--device", default="cpu")
    p.add_argument("--backend", help="what carries the gradients, as init_process_group takes it")
    args = p.parse_args()
    dist.init_process_group(args.backend)
    rank = dist.get_rank()
    text = torch.tensor(np.random.default_rng(0).integers(0, 64, (200, 17)))
    data = TensorDataset(text[:, :-1].contiguous(), text[:, 1:].contiguous())
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), drop_last=True)
    torch.manual_seed(7)
    model = Net().to(args.device)
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.02)  # several buckets
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    torch.manual_seed(100 + rank)
    losses: dict[str, str] = {}
    saved = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "loader": loader,
        "losses": losses,
    }
    checkpoints = Checkpointer(args.checkpoints)
    step = (checkpoints.resume(**saved) or 0) if args.resume else 0
    end = args.stop_after or args.steps
    while step < end:
        for x, y in loader:
            x, y = x.to(args.device), y.to(args.device)
            loss = F.cross_entropy(ddp(x).reshape(-1, 64), y.reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            losses[str(step)] = float(mean.item()).hex()
            step += 1
            if step == end:
                break
    checkpoints.save(step - 1, **saved)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(np.ascontiguousarray(parameter.detach().cpu().numpy()).tobytes())
    hashes: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hashes, digest.hexdigest())
    if rank == 0:
        print(json.dumps({"losses": losses, "hashes": hashes}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
