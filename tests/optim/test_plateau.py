"""`ReduceLROnPlateau`: groups that come later, and what libraries replace."""

from typing import Any

import pytest

import ddpgrad as torch


@pytest.mark.parametrize("lowest", [0.25, [0.25]])
def test_a_group_that_is_added_after_a_plateau_has_its_lowest_rate(lowest: Any):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=lowest)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 2.0})
    schedule.step(1.0)
    if isinstance(lowest, list):
        with pytest.raises(RuntimeError, match="The number of param groups in the"):
            schedule.step(1.0)
    else:
        schedule.step(1.0)
        assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


def test_libraries_replace_what_a_plateau_does() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    epochs: list[int] = []
    schedule._reduce_lr = epochs.append  # type: ignore[method-assign]
    for value in (1.0, 2.0, 3.0):
        schedule.step(value)
    assert epochs == [2, 3] and optimizer.param_groups[0]["lr"] == 1.0
