"""Opacus: gradients of each example by hooks, by functorch and by expanded weights, clipped and added up."""

import os
import warnings

import torch
import torch.distributed as dist
from opacus import GradSampleModule, PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.layers import DPLSTM
from opacus.validators import ModuleValidator
from reporting import say
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def perceptron():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def convolution():
    norm = nn.GroupNorm(2, 4)
    head = nn.Linear(4 * 3 * 5, 3)
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 4)), nn.Conv2d(1, 4, 2, padding=1), norm, nn.ReLU(), nn.Flatten(), head
    )


def data(size):
    g = torch.Generator().manual_seed(0)
    set_ = TensorDataset(torch.randn(32, 8, generator=g), torch.randint(0, 3, (32,), generator=g))
    return DataLoader(set_, batch_size=size)


def trained(model, mode="hooks", **options):
    """The losses of an epoch without noise, and the norms of the last gradients."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"noise_multiplier": 0.0, "max_grad_norm": 1.0, "poisson_sampling": False, **options}
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=data(8), grad_sample_mode=mode, **options
    )
    losses = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        losses.append(loss.item())
        norms = [p.grad_sample.flatten(1).norm(dim=1) for p in model.parameters()]
        optimizer.step()
    return losses, norms, [p.sum() for p in model.parameters()]


def alone():
    for mode, makes in {
        "hooks": (perceptron, convolution),
        "functorch": (perceptron, convolution),
        "ew": (perceptron,),
    }.items():
        for make in makes:
            torch.manual_seed(0)
            say(f"{make.__name__} by {mode}", *trained(make(), mode))
    torch.manual_seed(0)
    model = perceptron()
    engine = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        data_loader=data(8),
        target_epsilon=8.0,
        target_delta=1e-3,
        epochs=1,
        max_grad_norm=1.0,
    )
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    say("epsilon", engine.get_epsilon(1e-3), optimizer.noise_multiplier)
    engine.save_checkpoint(path="privacy.pt", module=model, optimizer=optimizer)
    engine.load_checkpoint(path="privacy.pt", module=model, optimizer=optimizer)
    fixed = ModuleValidator.fix(nn.Sequential(nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32)))
    say("fixed", [type(part).__name__ for part in fixed.modules()])
    torch.manual_seed(0)
    recurrent = GradSampleModule(DPLSTM(8, 6, batch_first=True))
    out, _ = recurrent(torch.randn(4, 3, 8))
    out.sum().backward()
    say("recurrent", out, {name: p.grad_sample.sum() for name, p in recurrent.named_parameters()})


def together():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    whole = DifferentiallyPrivateDistributedDataParallel(perceptron())
    say("ranks", dist.get_rank(), *trained(whole))
    torch.manual_seed(0)
    layered = nn.parallel.DistributedDataParallel(perceptron())
    options = {"clipping": "per_layer", "max_grad_norm": [1.0] * 4}
    say("layers", dist.get_rank(), *trained(layered, **options))
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    together() if int(os.environ.get("WORLD_SIZE", "1")) > 1 else alone()
