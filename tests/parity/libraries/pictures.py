"""timm: models, optimizers, schedules, averaged weights, checkpoints and transforms of pictures."""

import random
import tempfile

import numpy as np
import timm
import torch
from PIL import Image
from reporting import say
from safetensors.torch import save_file
from timm.data import Mixup, create_transform, resolve_model_data_config
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV2, ModelEmaV3

MODELS = {
    "resnet18": {"size": 64},
    "vit_tiny_patch16_224": {"size": 32, "img_size": 32},
    "convnext_atto": {"size": 64},
    "mobilenetv3_small_050": {"size": 64},
}
for name, options in MODELS.items():
    size = options.pop("size")
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=4, **options).double()
    x, y = torch.randn(2, 3, size, size, dtype=torch.float64), torch.tensor([1, 3])
    optimizer = create_optimizer_v2(model, "adamw", lr=1e-4, weight_decay=0.05)
    losses = []
    for _ in range(2):
        loss = LabelSmoothingCrossEntropy(0.1)(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    say(f"{name} losses", losses)
    path = f"{tempfile.mkdtemp()}/model.safetensors"
    save_file({key: value.float().contiguous() for key, value in model.state_dict().items()}, path)
    other = timm.create_model(name, num_classes=4, checkpoint_path=path, **options).eval()
    with torch.no_grad():
        say(f"{name} again", other(x.float()), list(other.forward_features(x.float()).shape))

picture = Image.fromarray(np.arange(80 * 60 * 3, dtype=np.uint8).reshape(80, 60, 3))
config = resolve_model_data_config(timm.create_model("resnet18"))
say("evaluation", config, create_transform(**config)(picture).mean())
torch.manual_seed(0)
np.random.seed(0)
random.seed(0)
augment = create_transform(
    (3, 32, 32), is_training=True, auto_augment="rand-m9-mstd0.5", re_prob=0.5, color_jitter=0.4
)
say("training", [augment(picture).mean() for _ in range(4)])
mixed = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=4)(torch.randn(4, 3, 8, 8), torch.arange(4))
say("mixed", mixed)


def small():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


x, y = torch.randn(8, 6, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
for name in ("adabelief", "adamw", "adan", "adopt", "cadamw", "kron", "lamb", "lars", "lion", "lookahead_sgd", "madgrad",
             "mars", "muon", "nadamw", "novograd", "rmsproptf", "sgdp", "sgdw"):  # fmt: skip
    model, losses = small(), []
    optimizer = create_optimizer_v2(model, name, lr=1e-2, weight_decay=0.01)
    for _ in range(4):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    say(f"optimizer {name}", losses)

model = small()
averages = [
    ModelEmaV2(model, 0.9),
    ModelEmaV3(model, 0.9),
    ModelEmaV3(model, 0.9, use_warmup=True, foreach=False),
]
optimizer = create_optimizer_v2(model, "sgd", lr=0.1, momentum=0.9)
for _ in range(3):
    model(x).square().mean().backward()
    optimizer.step()
    for average in averages:
        average.update(model)
say("averages", [average.module(x).sum() for average in averages])
for name in ("cosine", "step", "poly", "tanh"):
    schedule, epochs = create_scheduler_v2(optimizer, name, num_epochs=8, warmup_epochs=2, decay_epochs=3)
    rates = []
    for epoch in range(8):
        schedule.step(epoch)
        rates.append(optimizer.param_groups[0]["lr"])
    say(f"schedule {name}", epochs, rates)
