"""The digits example as its page shows it."""

import re
import sys

import digits
import pytest


@pytest.mark.full
def test_two_ranks_learn_to_read_digits(run):
    pytest.importorskip("sklearn")
    done = run(2, "digits.py")
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    accuracy = re.search(r"test accuracy ([\d.]+)%", last)
    assert accuracy is not None and float(accuracy[1]) >= 97, done.stdout
    assert "replicas bit-identical" in last


def test_what_to_install_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SystemExit, match=r'pip install "ddpgrad\[examples\]"'):
        digits.load()


def test_a_batch_that_does_not_fit_the_ranks_is_refused(run):
    done = run(2, "digits.py", "--batch", "33")
    assert done.returncode == 1
    assert "--batch 33 must be a multiple of the number of ranks, 2" in done.stderr
