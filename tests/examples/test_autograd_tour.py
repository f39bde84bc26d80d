"""The tour of autograd: what it prints is what it claims."""

import autograd_tour
import pytest


def test_the_tour(capsys: pytest.CaptureFixture[str]):
    autograd_tour.main()
    lines = capsys.readouterr().out.splitlines()
    for expected in (
        "x is a leaf: True; y is a leaf: False; y came from MulBackward0",
        "x.grad after two backward passes, 3 + 2x: [5.0, 7.0]",
        "y.grad, because of retain_grad: [4.0, 8.0]; x.grad: [8.0, 16.0]",
        "derivative 3 of x^4 at 2: 48",
        "CubeBackward gave [3.0, 12.0]",
        "gradcheck: True; twice: True",
        "the part ran: forward, again in backward",
        "the same gradient, dropout included: True",
        "after 3 backward passes steps is 0, while the hook has set step to 1",
    ):
        assert expected in lines
    hooks = lines[lines.index("hooks") + 1 :][:5]
    assert [line.partition(" sees")[0].partition(":")[0] for line in hooks] == [
        "tensor hook of y",
        "prehook of the node",
        "hook after the node",
        "tensor hook of the leaf x",
        "x.grad is filled",
    ]
