"""Views whose history cannot follow writes: made where nothing is recorded, together with others, or by a Function."""

from collections.abc import Callable

import pytest

import ddpgrad as torch
from ddpgrad.autograd import Function


class Same(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


def without_recording(a: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return a[:2]


def in_inference_mode(a: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return a[:2]


FIXED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "no_grad": (
        without_recording,
        "A view was created in no_grad mode and {} modified inplace with grad mode enabled",
    ),
    "inference": (
        in_inference_mode,
        "A view was created in inference mode and {} modified inplace in normal mode",
    ),
    "of such a view": (
        lambda a: without_recording(a)[:1],
        "is a view of a view which was created in no_grad mode and {}",
    ),
    "several": (
        lambda a: a.split(2)[1],
        "Output 1 of SplitBackward0 is a view and {} modified inplace. This view is the output of a function that returns "
        "multiple views",
    ),
    "Function": (
        Same.apply,
        r"Output 0 of SameBackward is a view and {} modified inplace. This view was created inside a custom Function",
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_they_are_not_written_to(name: str):
    make, text = FIXED[name]
    a = torch.ones(4, requires_grad=True) * 2
    view = make(a)
    with pytest.raises(RuntimeError, match=text.format("is being")):
        view.mul_(3)
    assert a.tolist() == [2.0] * 4
    with torch.no_grad():
        view.mul_(3)
    assert 6.0 in a.tolist()


@pytest.mark.parametrize("name", FIXED)
def test_they_are_not_used_after_their_base_was_written_to(name: str):
    make, text = FIXED[name]
    a = torch.ones(4, requires_grad=True) * 2
    view = make(a)
    a.mul_(2)
    with pytest.raises(RuntimeError, match=text.format("its base or another view of its base has been")):
        view.sum()
    assert repr(view).endswith("grad_fn=<Invalid>)")


@pytest.mark.parametrize("name", FIXED)
def test_views_of_plain_tensors_take_plain_values_only(name: str):
    a = torch.ones(4)
    view = FIXED[name][0](a)
    view.add_(1)
    with pytest.raises(RuntimeError, match="modified inplace"):
        view.mul_(torch.ones(1, requires_grad=True))


def test_a_recorded_view_may_change_its_shape_where_nothing_is_recorded():
    x = torch.arange(4.0).requires_grad_()
    view = (x * 1).view(2, 2)
    with torch.no_grad():
        view.t_()
    view.mul_(torch.arange(4.0).view(2, 2))
    view.sum().backward()
    assert x.grad.tolist() == [0.0, 2.0, 1.0, 3.0]
