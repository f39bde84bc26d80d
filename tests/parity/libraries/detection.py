"""torchvision: its ops, models of all kinds, detectors, transforms of both versions and datasets."""

import numpy as np
import torch
from PIL import Image
from reporting import say
from torch.nn.functional import cross_entropy
from torchvision import datasets, models, ops, tv_tensors, utils
from torchvision import transforms as v1
from torchvision.models import detection, segmentation
from torchvision.transforms import v2

rng = np.random.default_rng(0)


def drawn(*shape):
    return torch.tensor(rng.normal(size=shape), requires_grad=True)


def boxes(count, size, longest):
    corner = rng.uniform(0, size, (count, 2))
    return np.concatenate([corner, corner + rng.uniform(0.1, longest, (count, 2))], 1)


image = drawn(2, 18, 11, 13)
rois = torch.tensor(np.concatenate([rng.integers(0, 2, (9, 1)), boxes(9, 12, 9) - 3], 1))
tall, wide, taps = drawn(2, 2 * 2 * 6, 6, 6), drawn(2, 2 * 6, 6, 6), drawn(8, 9, 3, 2)
OPS = {
    "roi_align": lambda scale: ops.roi_align(image, rois, (3, 2), scale),
    "roi_align aligned": lambda scale: ops.roi_align(image, rois, (3, 2), scale, 2, True),
    "roi_pool": lambda scale: ops.roi_pool(image, rois, (3, 2), scale),
    "ps_roi_align": lambda scale: ops.ps_roi_align(image, rois, (3, 2), scale, 2),
    "ps_roi_pool": lambda scale: ops.ps_roi_pool(image, rois, (3, 2), scale),
    "deform_conv2d": lambda scale: ops.deform_conv2d(
        image, tall * scale, taps, stride=2, padding=(1, 0), dilation=(1, 2), mask=wide
    ),
}
for name, op in OPS.items():
    for scale in (1.0, 0.5):
        out = op(scale)
        leaves = [image, tall, wide, taps]
        found = torch.autograd.grad(out.sin().sum(), leaves, allow_unused=True)
        say(f"{name} {scale}", out.flatten()[::7], [g.flatten()[::31] for g in found if g is not None])
many, scores = torch.tensor(boxes(300, 50, 30)), torch.tensor(rng.uniform(size=300).round(2))
for threshold in (0.1, 0.5, 0.7):
    kinds = torch.arange(300) % 5
    say(f"nms {threshold}", ops.nms(many, scores, threshold), ops.batched_nms(many, scores, kinds, threshold))

torch.set_default_dtype(torch.float64)
CLASSIFIERS = {
    "resnet18": lambda: models.resnet18(num_classes=5),
    "mobilenet_v3_small": lambda: models.mobilenet_v3_small(num_classes=5, dropout=0.0),
    "vit": lambda: models.VisionTransformer(32, 8, 2, 4, 64, 128, num_classes=5),
    "swin": lambda: models.SwinTransformer(
        [4, 4], 24, [1, 1], [2, 4], [4, 4], num_classes=5, stochastic_depth_prob=0.0
    ),
    "convnext": lambda: models.ConvNeXt(
        [models.convnext.CNBlockConfig(16, 32, 1), models.convnext.CNBlockConfig(32, None, 1)],
        0.0,
        num_classes=5,
    ),
}
for name, make in CLASSIFIERS.items():
    torch.manual_seed(0)
    model = make()
    x, losses = torch.randn(2, 3, 32, 32), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(2):
        loss = cross_entropy(model(x), torch.tensor([1, 3]))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    say(f"{name} losses", losses)
    with torch.no_grad():
        say(f"{name} out", model.eval()(x))

pictures = [torch.rand(3, 64, 80, generator=torch.Generator().manual_seed(seed)) for seed in (2, 3)]
masks = (torch.arange(2 * 64 * 80).reshape(2, 64, 80) % 7 > 3).to(torch.uint8)
PLACES = torch.tensor([[5.0, 6.0, 40.0, 50.0], [20.0, 10.0, 70.0, 44.0]])
backbone = {"weights": None, "weights_backbone": None, "num_classes": 3}
DETECTORS = {
    "fasterrcnn": lambda: detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        **backbone, min_size=64, max_size=96
    ),
    "maskrcnn": lambda: detection.maskrcnn_resnet50_fpn(**backbone, min_size=48, max_size=64),
    "retinanet": lambda: detection.retinanet_resnet50_fpn(**backbone, min_size=48, max_size=64),
}
for name, make in DETECTORS.items():
    torch.manual_seed(0)
    model = make()
    targets = [{"boxes": PLACES, "labels": torch.tensor([1, 2]), "masks": masks} for _ in pictures]
    torch.manual_seed(5)
    losses = model(pictures, targets)
    sum(losses.values()).backward()
    slopes = [p.grad.abs().sum().item() for p in model.parameters() if p.grad is not None]
    say(f"{name} losses", {key: losses[key].item() for key in sorted(losses)}, sum(slopes))
    with torch.no_grad():
        out = model.eval()(pictures)
    say(
        f"{name} found",
        [{key: [list(o[key].shape), o[key].double().mean()] for key in sorted(o)} for o in out],
    )
torch.manual_seed(0)
model = segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
say("segmented", model(torch.stack(pictures))["out"].flatten()[::997])
torch.set_default_dtype(torch.float32)


def digest(x):
    x = x if isinstance(x, torch.Tensor) else torch.from_numpy(np.array(x))
    return [list(x.shape), str(x.dtype), x.double().mean(), x.double().std()]


ramp = np.add.outer(np.arange(40) * 3, np.arange(50) * 2)[..., None] + np.array([0, 40, 90])
picture = Image.fromarray(ramp.astype(np.uint8))
TRANSFORMS = {
    "crop": lambda t: t.RandomResizedCrop(24),
    "jitter": lambda t: t.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "affine": lambda t: t.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 10),
    "perspective": lambda t: t.RandomPerspective(0.5, 1.0),
    "blur": lambda t: t.GaussianBlur(5),
    "auto": lambda t: t.AutoAugment(),
    "rand": lambda t: t.RandAugment(),
    "augmix": lambda t: t.AugMix(),
    "equalize": lambda t: t.RandomEqualize(1.0),
    "elastic": lambda t: t.ElasticTransform(),
}
for version, module in (("v1", v1), ("v2", v2)):
    for name, make in TRANSFORMS.items():
        for kind, given in (("picture", picture), ("tensor", v1.functional.pil_to_tensor(picture))):
            torch.manual_seed(1)
            say(f"{version} {name} {kind}", digest(make(module)(given)))
flow = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(1.0), v2.CenterCrop(30), v2.SanitizeBoundingBoxes()])
marked = tv_tensors.BoundingBoxes([[3, 4, 20, 30], [10, 10, 45, 35]], format="XYXY", canvas_size=(40, 50))
x, target = flow(picture, {"boxes": marked, "labels": torch.tensor([1, 2])})
say("flow", digest(x), type(x).__name__, target["boxes"], type(target["boxes"]).__name__, target["labels"])
fake = datasets.FakeData(4, (3, 16, 16), 3, transform=v1.ToTensor())
say("fake", [(digest(x), y) for x, y in torch.utils.data.DataLoader(fake, batch_size=2)])
drawing = utils.draw_bounding_boxes(v1.functional.pil_to_tensor(picture), PLACES[:1], ["a"], colors="red")
say("drawn", digest(drawing), digest(utils.make_grid(drawing.float(), normalize=True)))
