"""Warnings name the line of the program, however many functions of the package lie between."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F

CASES: dict[str, Callable[[], Any]] = {
    "a function of nn.functional": lambda: F.softmax(torch.ones(2, 3)),
    "below it": lambda: F.mse_loss(torch.ones(2, 1), torch.ones(2, 3)),
    "a module": lambda: torch.nn.MSELoss()(torch.ones(2, 1), torch.ones(2, 3)),
    "an op with out": lambda: torch.add(torch.ones(3), 1, out=torch.ones(2)),
    "a method": lambda: torch.ones(1).var(),
    "a factory": lambda: torch.range(0, 3),
    "backward": lambda: torch.ones(1, requires_grad=True).sum().backward(create_graph=True),
    "a property": lambda: (torch.ones(1, requires_grad=True) * 2).grad,
    "initial values": lambda: torch.nn.init.kaiming_uniform_(torch.empty(0, 3)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_warning_names_the_line_of_the_program(case: str):
    with pytest.warns(UserWarning) as caught:
        CASES[case]()
    assert [warning.filename for warning in caught] == [__file__]


QUIET = """
import ddpgrad as torch
x = torch.zeros(2, requires_grad=True)
(x * x.log()).sum().backward()
torch.full((4000,), 3e38).sum(), torch.tensor([1e300]), torch.tensor([5]) / 0.0, torch.tensor([5.0]) % 0, torch.exp(x + 1e3)
import numpy as np
try:
    np.log(np.zeros(1))
except RuntimeWarning as warning:
    print(warning)
"""


def test_infinities_are_computed_quietly_and_the_program_is_still_warned_of_its_own():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", QUIET], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("divide by zero encountered in log\n", "")
