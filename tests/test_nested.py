"""Nested tensors: every function of one is the function of its parts, and so are gradients."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.nn import functional as F

LENGTHS = (2, 4, 3)
LAYOUTS = [torch.strided, torch.jagged]


def parts(width: int = 6) -> list[torch.Tensor]:
    return [torch.arange(float(n * width)).reshape(n, width).sin() for n in LENGTHS]


def nested(layout: Any = torch.jagged, **options: Any) -> torch.Tensor:
    return torch.nested.nested_tensor(parts(), layout=layout, **options)


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.unflatten(-1, (2, 3)).transpose(-3, -2)


# By name: the function of the whole, and of a part, where dimensions count one less.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "relu": (F.relu, F.relu),
    "operators": (lambda x: 2 * x.exp() - x / 3 + x**2 > 1, lambda x: 2 * x.exp() - x / 3 + x**2 > 1),
    "layer_norm": (lambda x: F.layer_norm(x, (6,)), lambda x: F.layer_norm(x, (6,))),
    "softmax": (lambda x: x.softmax(1), lambda x: x.softmax(0)),
    "sum": (lambda x: x.sum(-1, keepdim=True), lambda x: x.sum(-1, keepdim=True)),
    "transpose": (lambda x: x.transpose(1, 2), lambda x: x.transpose(0, 1)),
    "chunk": (lambda x: x.chunk(2, dim=2)[1], lambda x: x.chunk(2, dim=1)[1]),
    "view": (lambda x: x.view(3, -1, 2, 3), lambda x: x.view(-1, 2, 3)),
    "sizes": (lambda x: x.reshape(x.size(0), -1, 6, 1), lambda x: x.reshape(-1, 6, 1)),
    "unsqueeze": (lambda x: x.unsqueeze(1), lambda x: x.unsqueeze(0)),
    "cat": (lambda x: torch.cat([x, x], 2), lambda x: torch.cat([x, x], 1)),
    "bmm": (lambda x: torch.bmm(x, x.transpose(1, 2)), lambda x: x @ x.t()),
    "row": (lambda x: x + torch.arange(6.0), lambda x: x + torch.arange(6.0)),
    "attention": (
        lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), is_causal=True),
        lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), is_causal=True),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_the_whole_is_that_of_every_part(name: str, layout: Any):
    whole, part = FUNCTIONS[name]
    out = whole(nested(layout))
    assert out.is_nested and out.layout is layout and len(out) == len(LENGTHS)
    assert all(torch.equal(a, part(b)) for a, b in zip(out.unbind(), parts(), strict=True))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_gradients_are_those_of_the_parts(layout: Any):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 1))
    model(nested(layout)).values().square().sum().backward()
    got = [p.grad for p in model.parameters()]
    model.zero_grad()
    sum(model(part).square().sum() for part in parts()).backward()  # type: ignore[union-attr]
    for a, p in zip(got, model.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad)
    leaf = nested(layout, requires_grad=True)
    (leaf * leaf).sum().backward()
    assert leaf.is_leaf and all(torch.equal(g, 2 * x) for g, x in zip(leaf.grad, parts(), strict=True))
    tensors = [part.requires_grad_() for part in parts()]
    torch.nested.as_nested_tensor(tensors, layout=layout).to_padded_tensor(0.0).sum().backward()
    assert all(torch.equal(t.grad, torch.ones_like(t)) for t in tensors)  # type: ignore[arg-type]


def test_parts_sizes_and_padding():
    x = nested()
    assert x.shape[::2] == (3, 6) and x.size(1).lengths == LENGTHS and x.ndim == 3 and x.numel() == 54
    assert torch.equal(x.values(), torch.cat(parts())) and x.offsets().tolist() == [0, 2, 6, 9]
    again = torch.nested.nested_tensor_from_jagged(x.values(), x.offsets())
    assert torch.equal(again, x) and torch.equal(x[1], parts()[1]) and torch.equal(x[0, -1], parts()[0][-1])
    padded = torch.nested.to_padded_tensor(x, -1.0, (3, 5, 6))
    assert padded.shape == (3, 5, 6) and padded[0, 2:].unique().tolist() == [-1.0]
    cut = torch.nested.narrow(padded, 1, 0, torch.tensor(LENGTHS), layout=torch.jagged)
    assert (
        torch.equal(cut, x)
        and x.sum(1).shape == (3, 6)
        and x.mean().item() == pytest.approx(x.values().mean().item())
    )
    for made in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.clone().mul_(1)):
        assert torch.equal(made, x) and made.layout is torch.jagged
    assert "size=(3, j1, 6)" in repr(x) and repr(nested(torch.strided)).startswith("nested_tensor([")
    columns = torch.nested.masked_select(
        torch.arange(4).reshape(2, 2), torch.tensor([[True, True], [False, True]])
    )
    assert [part.tolist() for part in columns] == [[0, 1], [3]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.sum(0), "dimension 0"),
        (lambda x: x + torch.nested.nested_tensor(parts()[::-1]), "different sizes"),
        (lambda x: x.numpy(), "unbind"),
        (lambda x: nested(torch.strided).size(1), "irregular"),
        (lambda x: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(2, 2)], layout=torch.jagged), "jagged layout"),
        (lambda x: torch.nested.nested_tensor([torch.ones(2), torch.ones(2, 2)]), "as many dimensions"),
        (lambda x: x.to_padded_tensor(0.0, (3, 2, 6)), "does not hold"),
        (lambda x: x.backward(), "scalar outputs"),
    ],
)  # fmt: skip
def test_what_parts_cannot_be_is_refused(call: Callable[[Any], Any], message: str):
    with pytest.raises(RuntimeError, match=message):
        call(nested())
