"""CTC, weights and wrong arguments of losses against PyTorch, beyond `test_every_module.py`."""

from typing import Any

import numpy as np
import pytest
from both import check

import ddpgrad

RNG = np.random.default_rng(1)


def _values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("form", ["rows", "joined", "one"])
def test_ctc(form: str, reduction: str) -> None:
    """The fourth sequence is too short for its repeated labels: infinite, or 0 with zero_infinity."""
    scores, labels = _values(7, 4, 5), np.array([[1, 2, 2, 4], [3, 3, 1, 1], [2, 1, 1, 1], [2, 2, 2, 1]])
    times, sizes = np.array([7, 6, 5, 3]), np.array([4, 2, 0, 3])
    if form == "one":
        scores, labels, times, sizes = scores[:, 0], labels[0], times[:1], sizes[:1]
    if form == "joined":
        labels = np.concatenate([row[:n] for row, n in zip(labels, sizes, strict=True)])

    def loss(t: Any, module: Any, x: Any) -> Any:
        return module(
            t.nn.functional.log_softmax(x, -1), t.tensor(labels), *(t.tensor(n if form != "one" else n[0]) for n in (times, sizes))
        )  # fmt: skip

    check(lambda n: n.CTCLoss(reduction=reduction, zero_infinity=True), [scores], call=loss)


def test_ctc_of_a_sequence_that_is_too_short() -> None:
    scores = ddpgrad.log_softmax(ddpgrad.randn(2, 1, 3), -1)
    loss = ddpgrad.nn.functional.ctc_loss(scores, ddpgrad.tensor([[1, 1]]), (2,), (2,))
    assert float(loss) == float("inf")


def test_variances_must_not_be_negative() -> None:
    x = ddpgrad.ones(3)
    with pytest.raises(ValueError, match="negative"):
        ddpgrad.nn.functional.gaussian_nll_loss(x, x, -x)
    with pytest.raises(ValueError, match="incorrect size"):
        ddpgrad.nn.functional.gaussian_nll_loss(x, x, ddpgrad.ones(2))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["l1_loss", "mse_loss", "huber_loss"])
def test_weights_of_elements(name: str, reduction: str) -> None:
    """Whether a mean is over elements or over weights differs from loss to loss."""
    values = np.array([[1.0, -2.0, 3.0], [0.2, 0.1, 5.0]])

    def loss(t: Any, module: Any, x: Any) -> Any:
        function, weight = (
            getattr(t.nn.functional, name),
            t.tensor([[1.0, 2.0, 0.0], [3.0, 0.5, 1.0]]).double(),
        )
        with pytest.raises(ValueError, match="must have the same size"):
            function(x, x, weight=weight[0])
        return function(x, t.tensor(np.sin(values)), weight=weight, reduction=reduction)

    check(lambda n: n.Identity(), [values], call=loss)
