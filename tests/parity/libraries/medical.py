"""MONAI: MetaTensor, whose class and notes ops keep, transforms, batches, a UNet, losses and sliding windows."""

import torch
from monai.data import DataLoader, Dataset, MetaTensor, decollate_batch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import (
    Compose,
    CropForeground,
    EnsureTyped,
    Flip,
    NormalizeIntensity,
    RandCropByPosNegLabeld,
    RandFlip,
    RandFlipd,
    Resize,
    Resized,
    Rotate90,
    ScaleIntensity,
    ScaleIntensityd,
    Spacing,
)
from monai.utils import set_determinism
from reporting import say

set_determinism(0)


def kinds(*values):
    return [type(value).__name__ for value in values]


scan = MetaTensor(
    torch.arange(24.0).reshape(1, 2, 3, 4),
    affine=torch.diag(torch.tensor([2.0, 2, 2, 1])),
    meta={"name": "f"},
)
say(
    "ops",
    kinds(
        scan + 1, torch.add(1, scan), scan[0], scan.sum(), torch.stack([scan, scan]), scan.T, scan.as_tensor()
    ),
)
say("notes", (scan + 1).meta["name"], (scan * 2).affine, scan.to(torch.float64).pixdim, list(scan.shape))

volume = torch.rand(1, 16, 16, 16, generator=torch.Generator().manual_seed(0))
steps = [
    ScaleIntensity(),
    Spacing((2.0, 2.0, 2.0)),
    RandFlip(1.0, 0),
    Rotate90(),
    CropForeground(),
    Resize((8, 8, 8)),
]
out = Compose([*steps, NormalizeIntensity()])(MetaTensor(volume, affine=torch.eye(4)))
say("transforms", kinds(out), list(out.shape), out.affine, len(out.applied_operations), out.flatten()[::50])
both = Compose([Flip(0), Rotate90()])
back = both.inverse(both(MetaTensor(volume)))
say("inverse", kinds(back), (back - volume).abs().sum())
names = ["image", "label"]
crops = Compose([
    RandCropByPosNegLabeld(names, "label", (8, 8, 8), num_samples=2), RandFlipd(names, 1.0, 1), Resized(names, (6, 6, 6)),
])({"image": MetaTensor(volume), "label": MetaTensor((volume > 0.5).float())})  # fmt: skip
say("crops", [(kinds(crop["image"]), list(crop["image"].shape), crop["image"].affine) for crop in crops])

samples = Dataset([{"image": volume}] * 4, Compose([EnsureTyped("image"), ScaleIntensityd("image")]))
for batch in DataLoader(samples, batch_size=2):
    image = batch["image"]
    say(
        "batch",
        kinds(image, image[0]),
        list(image.shape),
        image.is_batch,
        image[0].is_batch,
        len(decollate_batch(batch)),
    )

net = UNet(3, 1, 2, (4, 8, 16), (2, 2), num_res_units=1, norm="instance")
with torch.no_grad():
    for parameter in net.parameters():
        parameter.copy_(torch.linspace(-0.1, 0.1, parameter.numel()).reshape(parameter.shape))
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
images = MetaTensor(torch.linspace(0, 1, 2 * 16**3).reshape(2, 1, 16, 16, 16))
measure = DiceCELoss(to_onehot_y=True, softmax=True)
for _ in range(3):
    out = net(images)
    loss = measure(out, (images > 0.5).float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    say("step", kinds(out, loss), loss)
dice = DiceMetric()
dice(y_pred=(out.argmax(1, keepdim=True) == 1).float(), y=(images > 0.5).float())
say("dice", dice.aggregate())
with torch.no_grad():
    say("windows", sliding_window_inference(images[:1], (8, 8, 8), 1, net).flatten()[::500])
