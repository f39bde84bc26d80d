"""Complex tensors: parts that are views, conjugates, and gradients as PyTorch defines them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch

Z = np.array([1 + 2j, -3.5j, 0.25 - 1j])


def gradient(function: Callable[[Any], Any], at: np.ndarray = Z) -> np.ndarray:
    z = torch.tensor(at, requires_grad=True)
    function(z).backward()
    return z.grad.numpy()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        # For real L the gradient is dL/dx + i dL/dy: of |z|² it is 2z, of Re(f) it is conj(f').
        (lambda z: (z.abs() ** 2).sum(), 2 * Z),
        (lambda z: (z * z.conj()).sum().real, 2 * Z),
        (lambda z: (z**3).sum().real, np.conj(3 * Z**2)),
        (lambda z: torch.exp(1j * z).sum().imag, np.conj(np.exp(1j * Z))),
        (lambda z: z.imag.sum(), np.full(3, 1j)),
        (lambda z: z.angle().sum(), 1j * Z / np.abs(Z) ** 2),
        (lambda z: (torch.view_as_real(z) * torch.tensor([2.0, 3.0])).sum(), np.full(3, 2 + 3j)),
    ],
)
def test_gradient_is_that_of_real_and_imaginary_part(function: Callable[[Any], Any], expected: np.ndarray):
    np.testing.assert_allclose(gradient(function), expected, rtol=1e-12)


def test_gradient_of_a_real_operand_is_real():
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    z = x * torch.tensor([1 + 1j, 2j])
    assert z.dtype is torch.complex64
    (z.real.sum() + z.imag.sum()).backward()
    assert x.grad.dtype is torch.float32 and x.grad.tolist() == [2.0, 2.0]


def test_second_gradient():
    z = torch.tensor(Z, requires_grad=True)
    (g,) = torch.autograd.grad((z**3).sum().real, z, create_graph=True)
    (second,) = torch.autograd.grad(g.real.sum(), z)
    np.testing.assert_allclose(second.numpy(), np.conj(6 * Z), rtol=1e-12)


def test_parts_are_views():
    z = torch.zeros(2, dtype=torch.complex64)
    z.real = torch.tensor([1.0, 2.0])
    z.imag[0] = 5
    assert z.tolist() == [1 + 5j, 2 + 0j]
    torch.view_as_real(z)[1, 1] = 7
    assert z.tolist() == [1 + 5j, 2 + 7j]
    pairs = torch.zeros(2, 2)
    torch.view_as_complex(pairs)[0] = 1 - 1j
    assert pairs.tolist() == [[1.0, -1.0], [0.0, 0.0]]
    y = torch.tensor([1 + 2j], requires_grad=True) * 2
    y.real.mul_(3)
    assert y.tolist() == [6 + 4j] and y.requires_grad


def test_made_of_parts():
    z = torch.complex(torch.tensor([1.0]), torch.tensor([2.0]))
    assert z.dtype is torch.complex64 and z.item() == 1 + 2j and complex(z) == 1 + 2j
    np.testing.assert_allclose(
        torch.polar(torch.tensor([2.0]), torch.tensor([np.pi / 2])).numpy(), [2j], atol=1e-6
    )
    assert torch.ones(1, dtype=torch.float64).add(1j).dtype is torch.complex128
    assert (
        torch.tensor([1.0]).conj().tolist() == [1.0] and torch.is_complex(z) and not torch.is_complex(z.real)
    )


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda z: z < 1, NotImplementedError, "no order"),
        (lambda z: torch.maximum(z, z), NotImplementedError, "no order"),
        (lambda z: z.floor(), NotImplementedError, "floor is not supported for complex inputs"),
        (lambda z: z.sign(), NotImplementedError, "sgn"),
        (lambda z: z.abs().imag, RuntimeError, "non-complex"),
        (
            lambda z: torch.complex(z.real, z.imag.float()),
            RuntimeError,
            "scalar type Double but got scalar type Float",
        ),
        (lambda z: torch.view_as_complex(torch.ones(3)), RuntimeError, "last dimension of size 2"),
        (lambda z: z.requires_grad_().sum().backward(), RuntimeError, "only for real scalar outputs"),
    ],
)
def test_what_has_no_meaning_is_refused(call: Callable[[Any], Any], kind: type[Exception], text: str):
    with pytest.raises(kind, match=text):
        call(torch.tensor(Z))


def test_python_numbers():
    x = torch.tensor(3 + 0j)
    assert (int(x), float(x), complex(x)) == (3, 3.0, 3 + 0j)
    for kind in (int, float):
        with pytest.raises(RuntimeError, match="cannot be converted to type"):
            kind(torch.tensor(3 + 1j))
