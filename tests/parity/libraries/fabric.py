"""Lightning's Fabric: DDP, accumulation without sums, clipping, checkpoints and collectives."""

import os

import torch
from lightning.fabric import Fabric
from reporting import say
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

WORLD = int(os.environ.get("WORLD_SIZE", "1"))


def main(precision):
    fabric = Fabric(
        accelerator="cpu", devices=WORLD, strategy="ddp" if WORLD > 1 else "auto", precision=precision
    )
    fabric.launch()
    fabric.seed_everything(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    data = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=8, shuffle=True))
    losses = []
    for epoch in range(2):
        if WORLD > 1:
            loader.sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader):
            with fabric.no_backward_sync(model, enabled=i % 2 == 0):
                loss = F.cross_entropy(model(x), y)
                fabric.backward(loss)
            losses.append(loss.item())
            if i % 2:
                fabric.clip_gradients(model, optimizer, max_norm=1.0)
                optimizer.step()
                optimizer.zero_grad()
    state = {"model": model, "optimizer": optimizer, "step": 5}
    fabric.save(f"{precision}.ckpt", state)
    before = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    state["step"] = 0
    fabric.load(f"{precision}.ckpt", state)
    same = all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    rank = torch.tensor(float(fabric.global_rank))
    say(f"fabric {precision}", losses, state["step"], same, [p.sum() for p in before])
    say("collectives", fabric.all_gather(rank), fabric.all_reduce(rank, reduce_op="sum"))
    say("broadcast", fabric.broadcast({"rank": fabric.global_rank}))


if __name__ == "__main__":
    main("32-true")
    main("bf16-mixed")
