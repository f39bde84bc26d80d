"""Anomaly detection: where the forward call of a failing backward is reported."""

import warnings

import pytest

import ddpgrad as torch
from ddpgrad.autograd import detect_anomaly, set_detect_anomaly


class Broken(torch.autograd.Function):
    """Gradients that are NaN, or an error."""

    fail = False

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        if Broken.fail:
            raise ValueError("backward failed")
        return g * float("nan")


class Outer(torch.autograd.Function):
    """A backward that calls Broken."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return Broken.apply(g)


def leaf() -> torch.Tensor:
    return torch.tensor([1.0, 2.0], requires_grad=True)


def broken_line(x: torch.Tensor) -> torch.Tensor:
    return Broken.apply(x)


def switch_on() -> detect_anomaly:
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"):
        return detect_anomaly()


def test_nan_is_reported_with_the_forward_call():
    with switch_on():
        y = broken_line(leaf()).sum()
        with (
            pytest.raises(
                RuntimeError, match="Function 'BrokenBackward' returned nan values in its 0th output"
            ),
            pytest.warns(
                UserWarning,
                match=r"Error detected in BrokenBackward\. Traceback of forward(.|\n)*broken_line",
            ),
        ):
            y.backward()
    assert not torch.is_anomaly_enabled()
    broken_line(leaf()).sum().backward()  # off again


def test_nan_of_a_kernel():
    x = torch.tensor([0.0], requires_grad=True)
    with set_detect_anomaly(True):
        y = (x.sqrt() * 0).sum()
        with (
            pytest.raises(RuntimeError, match="Function 'SqrtBackward0' returned nan"),
            pytest.warns(UserWarning, match=r"x\.sqrt\(\) \* 0"),
        ):
            y.backward()


def test_other_errors_are_reported_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Broken, "fail", True)
    with set_detect_anomaly(True, check_nan=False):
        assert torch.is_anomaly_enabled() and not torch.is_anomaly_check_nan_enabled()
        y = broken_line(leaf()).sum()
        with (
            pytest.raises(ValueError, match="backward failed"),
            pytest.warns(UserWarning, match="Error detected"),
        ):
            y.backward()
        monkeypatch.setattr(Broken, "fail", False)
        broken_line(leaf()).sum().backward()  # NaN is not looked for


def test_without_a_forward_pass_to_show():
    y = broken_line(leaf()).sum()
    with (
        set_detect_anomaly(True),
        pytest.raises(RuntimeError, match="nan"),
        pytest.warns(UserWarning, match="No forward pass information available"),
    ):
        y.backward()


def test_a_node_made_in_backward_names_what_made_it():
    x = leaf()
    with set_detect_anomaly(True), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        (g,) = torch.autograd.grad(
            Outer.apply(x).sum(), x, torch.tensor(1.0, requires_grad=True), create_graph=True
        )
        with pytest.raises(RuntimeError, match="BrokenBackward"):
            g.sum().backward()
    assert "Error detected in BrokenBackward" in str(seen[0].message)
    assert "induced by OuterBackward" in str(seen[1].message) and "Outer.apply" in str(seen[1].message)
