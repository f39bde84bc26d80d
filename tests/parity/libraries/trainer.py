"""Lightning's Trainer: fit, validate, test, predict, checkpoints, a resumed run, logs, callbacks, precision."""

import csv
import os
from pathlib import Path

import lightning as L
import torch
import torchmetrics
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities.model_summary import ModelSummary
from reporting import say
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

WORLD = int(os.environ.get("WORLD_SIZE", "1"))


class Data(L.LightningDataModule):
    def setup(self, stage):
        g = torch.Generator().manual_seed(0)
        x = torch.randn(96, 8, generator=g)
        y = (x[:, :3].sum(1) > 0).long() + (x[:, 3] > 1).long()
        self.train, self.rest = TensorDataset(x[:64], y[:64]), TensorDataset(x[64:], y[64:])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=8, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.rest, batch_size=8)

    test_dataloader = predict_dataloader = val_dataloader


class Net(L.LightningModule):
    def __init__(self, hidden=16, lr=0.05):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 3))
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)
        self.losses = []
        self.example_input_array = torch.zeros(2, 8)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, index):
        out = self.net(batch[0])
        self.accuracy(out, batch[1])
        self.log("val_loss", F.cross_entropy(out, batch[1]), sync_dist=True)
        self.log("val_accuracy", self.accuracy)

    def test_step(self, batch, index):
        self.log("test_loss", F.cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)

    def predict_step(self, batch, index):
        return self.net(batch[0]).argmax(1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"])
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


class Adversaries(L.LightningModule):
    """Two optimizers that are stepped by hand."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic = nn.Linear(4, 8), nn.Linear(8, 1)
        self.losses = []

    def training_step(self, batch, index):
        first, second = self.optimizers()
        noise = batch[0][:, :4]
        self.toggle_optimizer(first)
        made = -self.critic(self.generator(noise)).mean()
        first.zero_grad()
        self.manual_backward(made)
        first.step()
        self.untoggle_optimizer(first)
        self.toggle_optimizer(second)
        found = F.softplus(self.critic(batch[0])).mean()
        found = found + F.softplus(-self.critic(self.generator(noise).detach())).mean()
        second.zero_grad()
        self.manual_backward(found)
        self.clip_gradients(second, 0.5, "norm")
        second.step()
        self.untoggle_optimizer(second)
        self.losses += [made.item(), found.item()]

    def configure_optimizers(self):
        return [torch.optim.Adam(part.parameters(), 0.01) for part in (self.generator, self.critic)]


def trainer(strategy="ddp", **options):
    return L.Trainer(
        accelerator="cpu",
        devices=WORLD,
        strategy=strategy if WORLD > 1 else "auto",
        enable_progress_bar=False,
        log_every_n_steps=1,
        **options,
    )


def train():
    best = ModelCheckpoint("checkpoints", monitor="val_loss", save_last=True, filename="{epoch}-{step}")
    run = trainer(
        max_epochs=5,
        callbacks=[best, EarlyStopping("val_loss", patience=1, min_delta=1.0), LearningRateMonitor()],
        gradient_clip_val=0.5,
        accumulate_grad_batches=2,
        logger=CSVLogger(".", version=0),
    )
    model, data = Net(), Data()
    run.fit(model, data)
    say("fit", run.current_epoch, run.global_step, model.losses)
    say("metrics", {name: value.item() for name, value in sorted(run.callback_metrics.items())})
    say("validate", run.validate(model, data, verbose=False))
    say("test", run.test(model, data, ckpt_path="best", weights_only=False, verbose=False))
    say("predict", run.predict(model, data))
    say("files", sorted(path.name for path in Path("checkpoints").iterdir()))
    rows = csv.DictReader(Path("lightning_logs/version_0/metrics.csv").read_text().splitlines())
    say("csv", [{name: round(float(value), 3) for name, value in row.items() if value} for row in rows])
    resumed = Net()
    run = trainer(max_epochs=4, logger=False, enable_checkpointing=False)
    run.fit(resumed, data, ckpt_path=best.last_model_path, weights_only=False)
    say("resumed", run.current_epoch, run.global_step, resumed.losses)
    loaded = Net.load_from_checkpoint(best.best_model_path, weights_only=False)
    about = ModelSummary(loaded, max_depth=2)
    say("summary", str(about), about.total_parameters, about.total_flops)
    say("loaded", loaded.hparams["hidden"], loaded.net[0].weight.sum())


def train_otherwise():
    loader = DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=8)
    model = Adversaries()
    strategy = "ddp_find_unused_parameters_true"
    trainer(strategy, max_epochs=1, logger=False, enable_checkpointing=False).fit(model, loader)
    say("by hand", model.losses, [p.sum() for p in model.parameters()])
    for precision in ("bf16-mixed", "64-true"):
        L.seed_everything(2)
        model = Net()
        model.example_input_array = None  # which stays in float32
        trainer(max_epochs=1, precision=precision, logger=False, enable_checkpointing=False).fit(
            model, Data()
        )
        say(precision, model.losses)


if __name__ == "__main__":
    L.seed_everything(1, workers=True)
    train()
    train_otherwise()
