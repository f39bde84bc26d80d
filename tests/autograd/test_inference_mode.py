"""Inference mode: tensors that can never take part in a graph."""

import pytest

import ddpgrad as torch


@pytest.fixture
def inferred() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2)


def test_what_is_an_inference_tensor(inferred: torch.Tensor):
    x = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        assert torch.is_inference_mode_enabled() and not torch.is_grad_enabled()
        y = x * 2
        assert y.is_inference() and not y.requires_grad
        assert y.view(2, 1).is_inference() and torch.is_inference(torch.zeros(2))
        assert not x.view(2, 1).is_inference(), "a view of an ordinary tensor is one"
        with torch.enable_grad():
            assert torch.is_grad_enabled() and not (x * 2).requires_grad, "nothing is recorded"
            with torch.inference_mode(), torch.no_grad():
                assert not torch.is_grad_enabled()
            assert torch.is_grad_enabled()
        assert not torch.is_grad_enabled()
        with torch.inference_mode(False):
            assert (x * 2).requires_grad and not (x * 2).is_inference()
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
    assert inferred[0].is_inference() and inferred.detach().is_inference()
    assert not (inferred * 2).is_inference() and not inferred.clone().is_inference()


def test_a_view_made_outside_has_no_history():
    with torch.inference_mode():
        x = torch.ones(2, 2, requires_grad=True)
    for view in (x.view(-1), x[0], x.unbind()[1], x.t()):
        assert view.is_inference() and not view.requires_grad and view.is_leaf
    assert (x + 1).requires_grad


def test_what_is_refused_outside(inferred: torch.Tensor):
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        x * inferred
    assert (x + inferred).requires_grad, "a sum saves nothing"
    assert (x * inferred.clone()).requires_grad
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        inferred.add_(1)
    with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor"):
        inferred.requires_grad_()
    with pytest.raises(RuntimeError, match="do not track version counter"):
        print(inferred._version)
    with torch.inference_mode():
        assert inferred.add_(1).tolist() == [2.0, 2.0]


def test_ordinary_tensors_are_counted_inside():
    x = torch.ones(2, requires_grad=True)
    a = x * 1
    y = a * a
    with torch.inference_mode():
        a.add_(1)
    assert not a.is_inference()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_decorators():
    @torch.inference_mode
    def bare(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @torch.inference_mode(mode=False)
    def off(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    x = torch.ones(2, requires_grad=True)
    assert bare(x).is_inference() and not bare(x).requires_grad
    assert off(x).requires_grad
