"""onnx.export: onnxruntime computes what the model computes, and what cannot be exported is named."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.errors import ExportError

sys.path.append(str(Path(__file__).parent))

from exported import Call, check

IMAGE = (2, 4, 6, 6)

FUNCTIONS: list[tuple[str, Callable[..., Any]]] = [
    ("index", lambda x: x[:, 0, 1:3, None, ::2]),
    ("negative step by flip", lambda x: x.flip(1, 3)[..., -2:]),
    ("index by tensor", lambda x: x[:, torch.tensor([2, 0])]),
    ("greatest", lambda x: x.max(1)),
    ("reductions", lambda x: (x.mean((2, 3)), x.sum(1, keepdim=True), x.amax(-1), x.var(1), x.std((0, 2)), x.norm(dim=1))),
    ("logic", lambda x: torch.where((x > 0) & (x < 1), x, x.new_zeros(())).masked_fill(x != x, 0.0)),
    ("promotion", lambda x: x + torch.arange(6) * 0.5 + (x > 0)),
    ("chunks", lambda x: torch.cat(x.chunk(2, 1)[::-1], 0) + torch.stack(x.unbind(1), 1).reshape(4, 2, 6, 6)),
    ("einsum", lambda x: torch.einsum("bchw,cd->bdhw", x, torch.ones(4, 3))),
    ("normalize", lambda x: F.normalize(x) + F.cosine_similarity(x, x + 1).unsqueeze(1)),
    ("attention", lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)),
    ("masked attention", lambda x: F.scaled_dot_product_attention(x, x, x, torch.eye(6, dtype=torch.bool))),
    ("top", lambda x: x.topk(2, dim=1)),
    ("triangle", lambda x: x.tril(1) + x.triu() + x.cumsum(2)),
    ("numbers", lambda x: (x.exp2() + x.expm1(), x.abs().log1p(), (x.abs() + 1).log2(), x % 0.7, x.fmod(0.7), x.lerp(x * x, 0.3))),
    ("a logarithm times what may be 0", lambda x: (torch.xlogy(F.relu(x), x.abs() - 0.5), torch.xlogy(F.relu(x), F.relu(x)))),
    ("weighted sums", lambda x: (x.add(x * x, alpha=0.5) - x.sub(x.exp(), alpha=2), x.addcmul(x, x, value=0.3), x.addcdiv(x, x.exp()))),
    ("integers", lambda x: ((x * 9).int() % 4, (x * 9).long() & 3, ~(x > 0) | (x < -1))),
    ("order", lambda x: (x.sort(1, descending=True), x.roll((1, -2), (1, 3)))),
    ("in place", lambda x: F.relu(x * 2, inplace=True).add_(x).mul_(0.5)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_models_of_any_make(name, function):
    check(Call(function), (torch.randn(IMAGE),))


class Classifier(nn.Module):
    """Residuals in place, a view by sizes, and an LSTM whose state has the size of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.lstm = nn.LSTM(8, 5, batch_first=True)
        self.head = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.norm(self.conv(x)), inplace=True)
        h += x.mean(1, keepdim=True)
        b, c, height, width = h.shape
        h = h.view(b, height, c, width).permute(0, 1, 3, 2).reshape(b, height * width // 2, c * 2)
        out, (last, _) = self.lstm(h)
        return self.head(out[:, -1] + last.squeeze(0))


def test_a_dynamic_batch():
    check(
        Classifier(),
        (torch.randn(2, 3, 4, 4),),
        (torch.randn(7, 3, 4, 4),),
        input_names=["image"],
        output_names=["scores"],
        dynamic_axes={"image": {0: "batch"}, "scores": {0: "batch"}},
    )


def test_dynamic_length_and_batch_of_a_transformer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    axes = {"input": {0: "batch", 1: "time"}}
    check(layer, (torch.randn(2, 5, 8),), (torch.randn(3, 9, 8),), dynamic_axes=axes)


def test_positions_and_masks_of_a_dynamic_length():
    def model(x: torch.Tensor) -> torch.Tensor:
        time = x.shape[1]
        hidden = torch.full((time, time), float("-inf")).triu(1)
        return (x @ x.transpose(1, 2) + hidden).softmax(-1) + torch.arange(time) * 2

    axes = {"input": {0: "batch", 1: "time"}}
    check(Call(model), (torch.randn(2, 5, 8),), (torch.randn(3, 9, 8),), dynamic_axes=axes)


def test_an_embedding_and_the_names_of_parameters():
    onnx = pytest.importorskip("onnx")
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 3))
    ids = torch.tensor([[1, 2, 9]])
    check(model, (ids,))
    file = io.BytesIO()
    model.train()
    torch.onnx.export(model, ids, file, input_names=["ids"], output_names=["scores"])
    graph = onnx.load_from_string(file.getvalue()).graph
    assert {t.name for t in graph.initializer} >= {"0.weight", "1.weight", "1.bias"}
    assert [i.name for i in graph.input] == ["ids"] and [o.name for o in graph.output] == ["scores"]
    assert model.training and model[1].training


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: torch.linalg.det(x), "the op 'det'"),
        (lambda x: x * float(x.sum()), "depends on the input's values"),
        (lambda x: x + 1 if x.sum() > 20 else x.exp(), "Python branches"),
        (lambda x: x * torch.from_numpy(x.numpy() * 2), "depends on the input's values"),
        (lambda x: x.clone().index_fill_(0, torch.tensor([0]), 3.0), "no form in ONNX|in place"),
        (lambda x: [row := x * 1, row[0].mul_(2), row][2], "shares its memory"),
    ],
)
def test_what_cannot_be_exported_is_named(function, reason):
    x = torch.full((3, 3), 2.5) + torch.eye(3)
    with pytest.raises(ExportError, match=reason):
        torch.onnx.export(Call(function), (x,), io.BytesIO())
    # The ops are as they were before.
    assert torch.equal(torch.relu(x), x)


def test_a_size_that_cannot_follow_its_axis_is_an_error():
    with pytest.raises(ExportError, match="dynamic axis"):
        torch.onnx.export(
            Call(lambda x: x + torch.arange(x.shape[0] ** 2)[: x.shape[0], None]),
            torch.ones(3, 2),
            io.BytesIO(),
            dynamic_axes={"input": [0]},
        )
