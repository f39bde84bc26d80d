"""fastai: TensorBase and its like, and Learner's loop."""

import fastai.callback.progress
import fastai.callback.schedule  # noqa: F401  gives Learner its methods
import torch
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.losses import CrossEntropyLossFlat
from fastai.optimizer import Adam
from fastai.torch_core import TensorBase, TensorCategory, TensorImage, TensorMask
from reporting import say


def kinds(*values):
    return [type(value).__name__ for value in values]


image = TensorImage(torch.arange(12.0).reshape(1, 3, 4) / 12)
say(
    "ops",
    kinds(
        image + 1,
        image[0],
        image.clone(),
        torch.stack([image, image]),
        1 - image,
        torch.relu(image),
        image.data,
    ),
)
say("mixed", kinds(TensorImage(torch.ones(2)) + TensorMask(torch.ones(2).long())))

x = torch.linspace(-1, 1, 64 * 3).reshape(64, 3)
y = x @ torch.tensor([[1.0], [2.0], [-1.0]])
loader = DataLoader(list(zip(map(TensorBase, x), y, strict=True)), bs=16, shuffle=False)
net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
with torch.no_grad():
    for parameter in net.parameters():
        parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel()).reshape(parameter.shape))
learner = Learner(DataLoaders(loader, loader), net, loss_func=torch.nn.MSELoss(), opt_func=Adam, lr=1e-2)
with learner.no_bar(), learner.no_logging():
    learner.fit(2)
    say("fit", [list(map(float, losses)) for losses in learner.recorder.values], learner.validate()[0])
    learner.fit_one_cycle(1, 1e-2)
say("predictions", net(x).flatten()[::9])
loss = CrossEntropyLossFlat()(TensorBase(torch.ones(2, 3)), TensorCategory(torch.tensor([0, 1])))
say("loss", kinds(loss), loss)
