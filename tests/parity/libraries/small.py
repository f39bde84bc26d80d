"""Optimizers, averages, losses, solvers, summaries and event files of small libraries."""

import schedulefree
import torch
from google.protobuf.json_format import MessageToDict
from lion_pytorch import Lion
from pytorch_metric_learning import losses as metric_losses
from pytorch_metric_learning import miners
from reporting import say
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch import nn
from torch.nn import functional as F
from torch.utils.tensorboard import SummaryWriter
from torch_ema import ExponentialMovingAverage
from torchdiffeq import odeint, odeint_adjoint
from torchinfo import summary

torch.manual_seed(0)
x, y = torch.randn(32, 8), torch.randint(0, 3, (32,))


def steps(make, count=4):
    """The losses of the same small model under the optimizer that `make` returns, and the model."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = make(model.parameters())
    getattr(optimizer, "train", lambda: None)()
    found = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    getattr(optimizer, "eval", lambda: None)()
    return found, model


def optimizers():
    say("lion", steps(lambda p: Lion(p, 1e-2, weight_decay=0.1))[0])
    for make in (
        schedulefree.AdamWScheduleFree,
        schedulefree.SGDScheduleFree,
        schedulefree.RAdamScheduleFree,
    ):
        found, model = steps(lambda p, make=make: make(p, lr=0.05, foreach=False))
        say(make.__name__, found, model[0].weight.sum())


def averages():
    _, model = steps(torch.optim.SGD)
    average = ExponentialMovingAverage(model.parameters(), 0.9)
    with torch.no_grad():
        model[0].weight.add_(1.0)
    average.update()
    with average.average_parameters():
        say("average", model[0].weight.sum())
    torch.save(average.state_dict(), "average.pt")
    average.load_state_dict(torch.load("average.pt"))
    say("itself", model[0].weight.sum())


def distances():
    names = (
        "TripletMarginLoss",
        "NTXentLoss",
        "SupConLoss",
        "MultiSimilarityLoss",
        "CircleLoss",
        "FastAPLoss",
    )
    made = [getattr(metric_losses, name)() for name in names]
    torch.manual_seed(0)
    for loss in [*made, metric_losses.ArcFaceLoss(3, 8), metric_losses.ProxyAnchorLoss(3, 8)]:
        points = x.clone().requires_grad_()
        value = loss(points, y)
        value.backward()
        say(type(loss).__name__, value, points.grad.abs().sum())
    say("mined", [len(part) for part in miners.MultiSimilarityMiner()(x, y)])


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, t, z):
        return torch.tanh(self.layer(z))


def solvers():
    for method in ("dopri5", "rk4", "bosh3", "implicit_adams"):
        for solve in (odeint, odeint_adjoint):
            field = Field()
            path = solve(field, torch.ones(2, 4), torch.linspace(0, 1, 5), method=method)
            path.sum().backward()
            say(f"{method} {solve.__name__}", path, field.layer.weight.grad)


def reports():
    images = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(512, 4))
    say("summary", str(summary(images, input_size=(2, 3, 8, 8), verbose=0)))
    with SummaryWriter("events") as writer:
        for step in range(3):
            writer.add_scalar("loss", 2 * step, step)
        writer.add_histogram("h", x, 0)
        writer.add_hparams({"lr": 0.1, "name": "adam", "on": True}, {"found": 1.5}, run_name="run")
    read = EventAccumulator("events").Reload()
    say("events", [(event.step, event.value) for event in read.Scalars("loss")], read.Tags()["scalars"])
    read = EventAccumulator("events/run").Reload()
    contents = read.PluginTagToContent("hparams").items()
    say(
        "parameters", {tag: MessageToDict(HParamsPluginData.FromString(content)) for tag, content in contents}
    )


for part in (optimizers, averages, distances, solvers, reports):
    part()
