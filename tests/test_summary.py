"""summary: its figures are those worked out by hand, and the model is left as it was."""

import pytest

import ddpgrad as torch
from ddpgrad import nn


class Tied(nn.Module):
    """Two layers that share a weight, one that runs twice, and one that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.mix = nn.Linear(4, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.idle = nn.Linear(2, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.mix(self.mix(self.embed(ids)).relu()))


def by_name(found):
    return {layer.name: layer for layer in found.layers}


def test_a_convolutional_network_by_hand():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5))
    found = torch.summary(model, (2, 3, 4, 4))
    layers = by_name(found)
    assert [layer.output_shape for layer in found.layers[1:]] == [
        [2, 8, 4, 4],
        [2, 8, 4, 4],
        [2, 128],
        [2, 5],
    ]
    assert layers["0"].parameters == 8 * 27 + 8 and layers["3"].parameters == 128 * 5 + 5
    assert layers["0"].multiply_adds == 2 * 8 * 16 * 27 and layers["3"].multiply_adds == 2 * 5 * 128
    assert found.multiply_adds == layers[""].multiply_adds == 2 * (8 * 16 * 27 + 5 * 128)
    size = 4 * found.parameters
    assert (found.memory.parameters, found.memory.gradients, found.memory.optimizer_state) == (
        size,
        size,
        2 * size,
    )
    # The output of the ReLU, which it and the linear layer keep; the input of the model is there anyway.
    assert found.memory.activations == 4 * 2 * 8 * 16
    assert str(found).splitlines()[2].split() == ["Sequential", "[2,", "5]", "869", "8,192"]


def test_what_is_shared_counts_once_and_what_is_frozen_has_no_gradient():
    model = Tied()
    model.mix.requires_grad_(False)
    found = torch.summary(model, (3, 7), dtypes=torch.int64, optimizer_states=1)
    layers = by_name(found)
    assert found.parameters == 40 + 20 + 9 and found.trainable == 40 + 9
    assert layers["mix"].calls == 2 and layers["mix"].multiply_adds == 2 * 21 * 16
    assert layers["idle"].calls == 0 and "not run" in str(found)
    assert found.multiply_adds == 21 * (16 * 2 + 40)
    assert found.memory.gradients == found.memory.optimizer_state == 4 * 49


@pytest.mark.parametrize(
    ("model", "size", "cost"),
    [
        (nn.LSTM(3, 5), (7, 2, 3), 7 * 2 * 20 * (3 + 5)),
        (nn.GRU(3, 5, bidirectional=True), (7, 2, 3), 2 * 7 * 2 * 15 * (3 + 5)),
        (nn.ConvTranspose2d(4, 6, 3), (2, 4, 5, 5), 2 * 4 * 25 * 6 * 9),
        (nn.Conv1d(4, 6, 3, groups=2), (2, 4, 9), 2 * 6 * 7 * 2 * 3),
        (nn.Bilinear(3, 4, 5), [(2, 3), (2, 4)], None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_multiply_adds_of_layers(model, size, cost):
    found = torch.summary(model, size)
    assert found.multiply_adds == cost if cost is not None else found.multiply_adds > 0


def test_the_model_and_the_random_stream_are_as_before():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5))
    state, before = torch.get_rng_state(), {k: v.clone() for k, v in model.state_dict().items()}
    torch.summary(model, input_data=torch.randn(3, 4))
    torch.set_rng_state(state)
    drawn = torch.rand(3)
    torch.set_rng_state(state)
    torch.summary(model, (3, 4))
    assert torch.equal(torch.rand(3), drawn)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with pytest.raises(ValueError, match="either"):
        torch.summary(model)
