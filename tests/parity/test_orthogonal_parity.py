"""Orthogonal parametrizations against PyTorch."""

from typing import Any

import numpy as np
import pytest
from both import LIBRARIES, agree


@pytest.mark.parametrize("trivial", [True, False], ids=["relative", "absolute"])
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder", None])
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (2, 4, 3)], ids=str)
def test_orthogonal(shape: tuple[int, ...], kind: str | None, trivial: bool) -> None:
    """The weight, its state and the gradient of what it is made of, away from where it started."""
    start = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    away = 0.2 * np.tril(np.cos(np.arange(start.size, dtype=np.float32)).reshape(shape), -1)

    def program(stack: Any) -> Any:
        module = stack.nn.Module()
        module.weight = stack.nn.Parameter(stack.tensor(start))
        options = {"orthogonal_map": kind, "use_trivialization": trivial}
        stack.nn.utils.parametrizations.orthogonal(module, **options)
        free = module.parametrizations.weight.original
        with stack.no_grad():
            free.add_(stack.tensor(away))
        weight = module.weight
        weight.sin().sum().backward()
        wide = shape[-2] < shape[-1]
        product = weight @ weight.mT if wide else weight.mT @ weight
        np.testing.assert_allclose(
            product.detach().numpy(), np.broadcast_to(np.eye(min(shape[-2:])), product.shape), atol=1e-5
        )
        return {"weight": weight, "gradient": free.grad, **module.state_dict()}

    agree(program, 1e-4, seed=2)


def test_an_orthogonal_weight_can_be_assigned() -> None:
    matrix = np.linalg.qr(np.arange(9.0).reshape(3, 3) ** 2 + np.eye(3))[0].astype(np.float32)

    def program(stack: Any) -> Any:
        layer = stack.nn.utils.parametrizations.orthogonal(stack.nn.Linear(3, 3, bias=False))
        layer.weight = stack.tensor(matrix)
        return {"weight": layer.weight, **layer.state_dict()}

    np.testing.assert_allclose(agree(program, 1e-4)["weight"].detach().numpy(), matrix, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("absent", {}, ValueError, "no parameter or buffer with name 'absent'"),
        ("bias", {}, ValueError, "Got a tensor of 1 dimensions"),
        ("weight", {"orthogonal_map": "qr"}, ValueError, "orthogonal_map has to be one of .*Got: qr"),
    ],
)
def test_what_cannot_be_orthogonal(
    name: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    for stack in LIBRARIES:
        with pytest.raises(error, match=message):
            stack.nn.utils.parametrizations.orthogonal(stack.nn.Linear(3, 2), name, **options)
