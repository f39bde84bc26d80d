"""`nn.utils.parametrize`: what parametrizations must return, and what is handed on to another module."""

import pytest

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.nn.utils import parametrizations, parametrize


class Given(nn.Module):
    def __init__(self, forward, right_inverse):
        super().__init__()
        self.forward, self.right_inverse = forward, right_inverse


@pytest.mark.parametrize(
    ("right_inverse", "message"),
    [
        (lambda x: x.bool(), "may not change the dtype"),
        (lambda x: x.to("meta"), "may not change the device"),
        (lambda x: None, "Tensor or a Sequence"),
        (lambda x: (x, None), "element 1 of the sequence with type NoneType"),
    ],
)
def test_what_the_first_starts_from(right_inverse, message):
    layer = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=message):
        parametrize.register_parametrization(layer, "weight", Given(lambda *x: x[0].float(), right_inverse))
    assert type(layer) is nn.Linear and not parametrize.is_parametrized(layer)


@pytest.mark.parametrize(
    ("right_inverse", "message"),
    [
        (lambda x: (x, x), "must return a tensor. Got: tuple"),
        (lambda x: x.double(), "must have the same dtype"),
        (lambda x: x[:1], "must have the same shape"),
    ],
)
def test_what_a_later_one_starts_from(right_inverse, message):
    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", nn.Identity())
    with pytest.raises(ValueError, match=message):
        parametrize.register_parametrization(layer, "weight", Given(lambda x: x, right_inverse))
    assert len(layer.parametrizations.weight) == 1


def test_a_transfer_shares_what_the_tensor_is_computed_from():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    parametrizations.weight_norm(first)
    parametrize.transfer_parametrizations_and_params(first, second)
    for name in ("original0", "original1"):
        assert getattr(second.parametrizations.weight, name) is getattr(first.parametrizations.weight, name)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated:FutureWarning")
def test_normalisations_refuse_what_they_cannot_divide():
    with pytest.raises(IndexError, match=r"expected to be in range of \[-2, 1\], but got 2"):
        parametrizations.weight_norm(nn.Linear(2, 2), dim=2)
    lazy = nn.LazyLinear(2)
    for norm in (nn.utils.weight_norm, nn.utils.spectral_norm):
        with pytest.raises(ValueError, match="uninitialized parameters"):
            norm(lazy)


def test_the_spectral_norm_of_complex_weights():
    layer = nn.Linear(2, 2, dtype=torch.complex64)
    diagonal = torch.tensor([1 + 2j, 3 - 4j])
    layer.weight = nn.Parameter(torch.diag(diagonal))
    parametrizations.spectral_norm(layer)
    torch.testing.assert_close(layer.weight.detach(), torch.diag(diagonal / 5), rtol=1e-4, atol=1e-4)


def test_a_buffer_is_a_tensor_with_a_mark():
    data = torch.ones(2)
    buffer = nn.Buffer(data, persistent=False)
    assert type(buffer) is torch.Tensor and isinstance(buffer, nn.Buffer) and not isinstance(data, nn.Buffer)
    assert repr(buffer) == "tensor([1., 1.])" and buffer.data_ptr() == data.data_ptr()
    assert not isinstance(buffer + 1, nn.Buffer)
    module = nn.Module()
    module.a, module.b = buffer, nn.Buffer(data)
    assert list(dict(module.named_buffers())) == ["a", "b"] and list(module.state_dict()) == ["b"]


def test_an_inverse_may_not_change_the_shape():
    class First(nn.Module):
        def forward(self, x):
            return x

        def right_inverse(self, x):
            return x[:1]

    layer = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="shape"):
        nn.utils.parametrize.register_parametrization(layer, "weight", First())
    assert type(layer) is nn.Linear


def test_a_further_one_is_asked_for_the_inverse_of_what_it_makes():
    def inverse(x: torch.Tensor) -> torch.Tensor:
        if (x < 0).any():
            raise ValueError("not in its range")
        return x

    layer = nn.Linear(2, 2)
    nn.init.constant_(layer.weight, -1.0)
    parametrize.register_parametrization(layer, "weight", Given(lambda x: x, lambda x: x))
    parametrize.register_parametrization(layer, "weight", Given(torch.abs, inverse))
    assert layer.weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]
