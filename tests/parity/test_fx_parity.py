"""`torch.fx` makes the graphs that PyTorch makes: the same nodes, names and source."""

import math
from typing import Any

import numpy as np
import pytest
import torch as pytorch
from torch import fx as pytorch_fx

import ddpgrad
from ddpgrad import fx


def _net(torch: Any) -> Any:
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(4, 8)
            self.rest = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Sigmoid())
            self.weight = torch.nn.Parameter(torch.ones(8))
            self.register_buffer("shift", torch.arange(8.0))
            self.plain = torch.ones(8)

        def forward(self, x, scale=2.0, *, flag=None):
            y = self.rest(self.first(x)) * self.weight.sum() + self.shift - self.plain
            a, b = y.chunk(2, dim=-1)
            z = torch.cat([a, b], dim=1).view(x.shape[0], -1) ** 2 / scale + (-y) + torch.ones(8)
            rows, columns = z.size()
            return {"z": z.transpose(0, 1)[1:, :].sum(dim=0, keepdim=True), "n": (math.sqrt(rows), columns)}

    return Net()


FUNCTIONS: dict[str, Any] = {
    "operators": lambda torch: (
        lambda x, y: (x + 1, 2 - x, x @ y, ~(x > y), -x, abs(x), x // 2, 2**x, x % 3, x << 1)
    ),
    "indexes": lambda torch: lambda x: (x[0], x[..., 1:], x[:, None], x[x > 0], x.T, x.shape[-1], x.size(0)),
    "reserved names": lambda torch: lambda input, type, lambda_: input.sum(type) + lambda_,
    "methods": lambda torch: (
        lambda x: x.to(torch.float64).reshape(-1, 2).softmax(dim=-1).add_(1).mul(float("nan"))
    ),
    "rest": lambda torch: lambda x, *rest, **named: x,
    "numbers": lambda torch: lambda x, y=1.5, z=None: x * y,
    "functions": lambda torch: (
        lambda x, w: torch.stack([torch.einsum("ij,kj->ik", x, w), torch.zeros_like(x)], dim=0)
    ),
    "unused": lambda torch: lambda x: (x.exp(), x)[1],
    "module": _net,
}


def _rows(graph: Any) -> list[tuple[Any, ...]]:
    return [
        (
            n.op,
            n.name,
            n.target if isinstance(n.target, str) else n.target.__name__,
            str(n.args),
            str(dict(n.kwargs)),
            sorted(map(str, n.users)),
        )
        for n in graph.nodes
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_and_their_source_are_pytorchs(name):
    wanted = pytorch_fx.symbolic_trace(FUNCTIONS[name](pytorch))
    found = fx.symbolic_trace(FUNCTIONS[name](ddpgrad))
    assert _rows(found.graph) == _rows(wanted.graph)
    assert str(found.graph) == str(wanted.graph).replace("torch.functional.einsum", "torch.einsum")
    source = wanted.code.replace('torch.fx._symbolic_trace.wrap("math_sqrt")\n', "")
    source = source.replace("torch.functional.einsum", "torch.einsum").replace(
        "_operator_abs", "operator_abs"
    )
    assert found.code.split() == source.split()


def _edited(torch: Any, graphs: Any) -> tuple[Any, ...]:
    net = _net(torch)
    net.load_state_dict({k: torch.full_like(v, 0.5) for k, v in net.state_dict().items()})
    traced = graphs.symbolic_trace(net)
    (node,) = (n for n in traced.graph.nodes if n.target == "first")
    with traced.graph.inserting_after(node):
        made = traced.graph.call_function(torch.tanh, (node,))
    node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)
    matches = graphs.replace_pattern(traced, lambda x: torch.tanh(x), lambda x: torch.sin(x) * 2)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    out = traced(torch.ones(3, 4))
    return len(matches), _rows(traced.graph), out["n"], np.asarray(out["z"].detach())


def test_edits_give_the_graphs_and_the_numbers_of_pytorch():
    *wanted, numbers = _edited(pytorch, pytorch_fx)
    *found, ours = _edited(ddpgrad, fx)
    assert found == wanted and found[0] == 1
    np.testing.assert_allclose(ours, numbers, rtol=1e-5)
