"""PyTorch-Ignite: an engine with metrics, checkpoints and handlers, on the ranks that it is started on."""

import os
from pathlib import Path

import ignite.distributed as idist
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, CosineAnnealingScheduler, DiskSaver, EarlyStopping, EMAHandler
from ignite.metrics import Accuracy, ConfusionMatrix, Fbeta, Loss, RunningAverage
from ignite.utils import manual_seed
from reporting import say
from torch import nn
from torch.utils.data import TensorDataset


def train(local_rank):
    rank = idist.get_rank()
    manual_seed(7)
    data = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
    loader = idist.auto_dataloader(data, batch_size=16, shuffle=True)
    model = idist.auto_model(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)))
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss(), device=idist.device())
    metrics = {
        "accuracy": Accuracy(),
        "loss": Loss(nn.CrossEntropyLoss()),
        "f1": Fbeta(1),
        "matrix": ConfusionMatrix(3),
    }
    evaluator = create_supervised_evaluator(model, metrics, device=idist.device())
    RunningAverage(output_transform=lambda loss: loss).attach(trainer, "average")
    trainer.add_event_handler(
        Events.ITERATION_STARTED, CosineAnnealingScheduler(optimizer, "lr", 0.1, 0.01, 4)
    )
    evaluator.add_event_handler(
        Events.COMPLETED, EarlyStopping(5, lambda e: -e.state.metrics["loss"], trainer)
    )
    saved = Checkpoint(
        {"model": model, "optimizer": optimizer, "trainer": trainer},
        DiskSaver("saved", require_empty=False),
        n_saved=1,
    )
    trainer.add_event_handler(Events.EPOCH_COMPLETED, saved)
    averaged = EMAHandler(model, momentum=0.1)
    averaged.attach(trainer)
    losses = []
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output))

    @trainer.on(Events.EPOCH_STARTED)
    def shuffle(engine):
        if idist.get_world_size() > 1:
            loader.sampler.set_epoch(engine.state.epoch)

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine):
        found = evaluator.run(loader).metrics
        say("evaluated", rank, engine.state.epoch, found, engine.state.metrics["average"])

    trainer.run(loader, max_epochs=2)
    say("trained", rank, losses, sum(p.sum() for p in averaged.ema_model.parameters()))
    idist.barrier()
    (path,) = Path("saved").iterdir()
    state = torch.load(path, map_location="cpu", weights_only=False)
    say("saved", state["trainer"], sorted(name.removeprefix("module.") for name in state["model"]))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    Checkpoint.load_objects({"model": model, "optimizer": optimizer, "trainer": trainer}, state)
    losses.clear()
    trainer.run(loader, max_epochs=3)
    say("resumed", rank, losses)
    say(
        "gathered",
        idist.all_reduce(float(rank + 1)),
        idist.all_gather(torch.tensor([rank])),
        idist.all_gather({"r": rank}),
    )


if __name__ == "__main__":
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    with idist.Parallel(backend="gloo" if several else None) as parallel:
        parallel.run(train)
