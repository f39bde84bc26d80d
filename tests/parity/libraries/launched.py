"""Lightning starts the second rank itself, as a process that runs this program again."""

import os

if "IN_PLACE_OF_PYTORCH" in os.environ:
    from ddpgrad.launcher import as_torch

    as_torch.install()

import lightning as L
import torch
from reporting import say
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.losses = torch.nn.Linear(8, 3), []

    def training_step(self, batch, index):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


if __name__ == "__main__":
    L.seed_everything(1)
    options = {"enable_progress_bar": False, "logger": False, "enable_checkpointing": False}
    trainer = L.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, **options)
    model = Net()
    data = TensorDataset(torch.randn(32, 8), torch.randint(0, 3, (32,)))
    trainer.fit(model, DataLoader(data, batch_size=4, shuffle=True))
    say("trained", trainer.global_rank, trainer.world_size, model.losses, model.net.weight.sum())
