"""The benchmark's models and batches. The same source builds them on PyTorch and on ddpgrad.

Every function takes the module `torch`, which is either, and `size`, the samples of a batch; it returns a `Job`. Weights are
drawn by the stack that builds them. `fused=True` gives PyTorch its fastest optimizers.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ddpgrad.core.errors import LaunchError


@dataclass(frozen=True)
class Job:
    """One training job.

    loss(model, batch) is a 0-d Tensor; batch(seed) draws inputs and targets for one rank;
    optimizer(parameters, lr=...) is what a step of the job ends with.
    """

    model: Any
    loss: Callable[[Any, tuple[Any, Any]], Any]
    batch: Callable[[int], tuple[Any, Any]]
    optimizer: Callable[..., Any]


def named(text: str) -> Callable[..., Job]:
    """The function that makes the job: one of `MODELS`, or a file's, as PATH:FUNCTION.

    Raises LaunchError if there is none.
    """
    if text in MODELS:
        return MODELS[text]
    path, colon, name = text.rpartition(":")
    if not colon:
        raise LaunchError(f"--model {text!r} is none of {', '.join(MODELS)}, nor PATH:FUNCTION")
    if not Path(path).is_file():
        raise LaunchError(f"--model {text!r}: there is no file {path}")
    found: dict[str, Any] = runpy.run_path(path)
    if not callable(found.get(name)):
        raise LaunchError(f"--model {text!r}: {path} has no function {name}")
    return found[name]


def _classifier(torch: Any, model: Any, shape: tuple[int, ...], classes: int = 10) -> Job:
    """A job of SGD with momentum: batches of `shape`, labels below `classes`."""

    def batch(seed: int) -> tuple[Any, Any]:
        torch.manual_seed(seed)
        return torch.randn(*shape), torch.randint(0, classes, (shape[0],))

    return Job(
        model,
        lambda model, pair: torch.nn.functional.cross_entropy(model(pair[0]), pair[1]),
        batch,
        lambda parameters, lr=0.01: torch.optim.SGD(parameters, lr=lr, momentum=0.9, fused=True),
    )


def _layers(torch: Any, widths: list[int]) -> Any:
    nn = torch.nn
    hidden = [layer for a, b in pairwise(widths[:-1]) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(widths[-2], widths[-1]))


def tiny_mlp(torch: Any, size: int = 32) -> Job:
    """12 layers of 32 on batches of 32: what the runtime itself costs, next to no arithmetic."""
    return _classifier(torch, _layers(torch, [32] * 12 + [10]), (size, 32))


def mlp(torch: Any, inputs: int = 784, width: int = 3072, size: int = 64) -> Job:
    """24 million parameters, 96 MB of gradients, on batches of 64: what the all-reduce costs."""
    return _classifier(torch, _layers(torch, [inputs, width, width, width, inputs, 10]), (size, inputs))


def mnist_cnn(torch: Any, side: int = 28, width: int = 32, dropout: float = 0.3, size: int = 64) -> Job:
    """The network of mnist.py, on batches of 64."""
    nn = torch.nn

    def block(a: int, b: int) -> list[Any]:
        return [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]

    features = [*block(1, width), *block(width, 2 * width), nn.Flatten(), nn.Dropout(dropout)]
    head = [nn.Linear(2 * width * (side // 4) ** 2, 4 * width), nn.ReLU(), nn.Linear(4 * width, 10)]
    return _classifier(torch, nn.Sequential(*features, *head), (size, 1, side, side))


def resnet18_cifar(torch: Any, width: int = 64, size: int = 8) -> Job:
    """ResNet-18 as it is used for CIFAR images (first convolution 3x3, no pooling), on batches of 8.

    Source: https://arxiv.org/abs/1512.03385
    """
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
            self.conv2, self.norm2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
            self.short = nn.Identity()
            if stride != 1 or a != b:
                self.short = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))

        def forward(self, x: Any) -> Any:
            h = F.relu(self.norm1(self.conv1(x)))
            return F.relu(self.norm2(self.conv2(h)) + self.short(x))

    blocks, a = [], width
    for b, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
        blocks += [Block(a, b, stride), Block(b, b, 1)]
        a = b
    stem = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(a, 10))
    return _classifier(torch, model, (size, 3, 32, 32))


def resnet50(torch: Any, size: int = 8, side: int = 224) -> Job:
    """ResNet-50 for ImageNet (the stride in the 3x3 convolution), on batches of 8: 25.6 million parameters.

    Source: https://arxiv.org/abs/1512.03385
    """
    nn, F = torch.nn, torch.nn.functional

    def convolution(a: int, b: int, kernel: int, stride: int = 1) -> Any:
        return nn.Sequential(nn.Conv2d(a, b, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(b))

    class Block(nn.Module):
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            self.narrow, self.wide = convolution(a, b, 1), convolution(b, 4 * b, 1)
            self.middle = convolution(b, b, 3, stride)
            self.short = nn.Identity() if a == 4 * b else convolution(a, 4 * b, 1, stride)

        def forward(self, x: Any) -> Any:
            return F.relu(self.wide(F.relu(self.middle(F.relu(self.narrow(x))))) + self.short(x))

    blocks, a = [], 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for n in range(count):
            blocks.append(Block(a, 64 << stage, 2 if n == 0 < stage else 1))
            a = 256 << stage
    stem = [convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(a, 1000))
    return _classifier(torch, model, (size, 3, side, side), 1000)


def gpt(
    torch: Any,
    layers: int = 6,
    width: int = 384,
    heads: int = 6,
    context: int = 128,
    size: int = 4,
    tokens: int = 256,
) -> Job:
    """A byte-level GPT of 6 layers of 384 on batches of 4 times 128 bytes, with AdamW."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            heads_first = self.qkv(self.norm1(x)).view(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
            q, k, v = heads_first.unbind(0)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(a.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bytes, self.positions = nn.Embedding(tokens, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm = nn.LayerNorm(width)
            for table in (self.bytes, self.positions):
                nn.init.normal_(table.weight, 0.0, 0.02)

        def forward(self, x: Any) -> Any:
            h = self.bytes(x) + self.positions(torch.arange(x.shape[1], device=x.device))
            return F.linear(self.norm(self.blocks(h)), self.bytes.weight)

    def batch(seed: int) -> tuple[Any, Any]:
        torch.manual_seed(seed)
        text = torch.randint(0, tokens, (size, context + 1))
        return text[:, :-1], text[:, 1:]

    return Job(
        GPT(),
        lambda model, pair: F.cross_entropy(model(pair[0]).reshape(-1, tokens), pair[1].reshape(-1)),
        batch,
        lambda parameters, lr=3e-4: torch.optim.AdamW(
            parameters, lr=lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True
        ),
    )


def lstm(torch: Any, layers: int = 2, width: int = 256, context: int = 64, size: int = 16) -> Job:
    """A byte-level LSTM of 2 layers of 256 on batches of 16 times 64 bytes, with AdamW."""
    nn, F = torch.nn, torch.nn.functional

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bytes = nn.Embedding(256, width)
            self.lstm = nn.LSTM(width, width, layers, batch_first=True)
            self.out = nn.Linear(width, 256)

        def forward(self, x: Any) -> Any:
            return self.out(self.lstm(self.bytes(x))[0])

    def batch(seed: int) -> tuple[Any, Any]:
        torch.manual_seed(seed)
        text = torch.randint(0, 256, (size, context + 1))
        return text[:, :-1], text[:, 1:]

    return Job(
        Recurrent(),
        lambda model, pair: F.cross_entropy(model(pair[0]).reshape(-1, 256), pair[1].reshape(-1)),
        batch,
        lambda parameters, lr=1e-3: torch.optim.AdamW(parameters, lr=lr, fused=True),
    )


MODELS: dict[str, Callable[..., Job]] = {
    f.__name__: f for f in (tiny_mlp, mlp, mnist_cnn, resnet18_cifar, resnet50, gpt, lstm)
}
