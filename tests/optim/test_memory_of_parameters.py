"""Parameters that lie in memory otherwise than in the order of their dimensions, or are not finite."""

import pytest

import ddpgrad as torch
from ddpgrad import nn, optim

ELEMENTWISE = [
    optim.SGD, optim.Adam, optim.AdamW, optim.Adamax, optim.NAdam, optim.RAdam, optim.RMSprop, optim.Adagrad,
    optim.Adadelta, optim.Rprop, optim.ASGD,
]  # fmt: skip


@pytest.mark.parametrize("make", ELEMENTWISE)
def test_state_lies_as_its_parameter_does(make):
    torch.manual_seed(0)
    values = torch.randn(2, 3, 4, 2)
    gradients = [torch.randn(2, 3, 4, 2) for _ in range(3)]
    results = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        parameter = nn.Parameter(values.clone(memory_format=memory_format))
        optimizer = make([parameter], lr=0.1)
        for i, gradient in enumerate(gradients):
            parameter.grad = gradient.clone(memory_format=(memory_format, torch.contiguous_format)[i % 2])
            optimizer.step()
            if i == 1:  # what a file has may lie otherwise
                saved = {
                    n: {k: v.contiguous() for k, v in state.items()}
                    for n, state in optimizer.state_dict()["state"].items()
                }
                optimizer.load_state_dict({**optimizer.state_dict(), "state": saved})
        assert parameter.is_contiguous(memory_format=memory_format)
        states = optimizer.state[parameter].values()
        assert all(s.is_contiguous(memory_format=memory_format) for s in states if s.ndim)
        results.append((parameter, *states))
    for found, expected in zip(*results, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam])
def test_a_parameter_that_stands_for_itself_several_times_is_refused(make):
    parameter = nn.Parameter(torch.ones(1).expand(3))
    parameter.grad = torch.ones(3)
    with pytest.raises(RuntimeError, match="refers to a single memory location"):
        make([parameter], lr=0.1).step()


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam])
def test_a_parameter_of_integers_is_refused(make):
    parameter = torch.tensor([1, 2])
    parameter.grad = torch.tensor([1, 1])
    with pytest.raises(
        RuntimeError, match=r"floating-point parameters, and one \(shape \[2\]\) is of dtype int64"
    ):
        make([parameter], lr=0.1).step()


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam, optim.Adagrad])
def test_infinite_elements_without_gradient_stay_what_they_are(make):
    parameter = nn.Parameter(torch.tensor([-float("inf"), 1.0]))
    parameter.grad = torch.tensor([0.0, 1.0])
    make([parameter], lr=0.5).step()
    assert parameter.tolist() == [-float("inf"), 0.5]
