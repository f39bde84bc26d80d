"""benchmark.Timer, with a clock that the test drives."""

import itertools

import pytest

import ddpgrad
from ddpgrad.utils.benchmark import Timer


def ticking(step):
    """A clock that goes on by `step` seconds whenever it is read."""
    count = itertools.count()
    return lambda: next(count) * step


def test_timeit_counts_runs_after_warming_up():
    runs = []
    found = Timer("runs.append(x)", "x = 5", globals={"runs": runs}, timer=ticking(4.0), label="add").timeit(
        8
    )
    assert runs == [5] * (2 + 8)
    assert found.times == [0.5]
    assert (found.mean, found.median, found.iqr) == (0.5, 0.5, 0.0)
    assert "add\n  500.00 ms\n  1 measurement, 8 runs each" in repr(found)


def test_blocks_are_timed_until_there_is_enough_time():
    told = []
    found = Timer(timer=ticking(0.1)).blocked_autorange(lambda n, t: told.append((n, t)), min_run_time=0.35)
    assert [round(t, 6) for t in found.times] == [0.1] * 4
    assert [n for n, _ in told] == [1] * 4
    assert found.iqr == pytest.approx(0.0, abs=1e-9)


def test_threads_are_set_for_the_statement_alone():
    before, seen = ddpgrad.get_num_threads(), []
    Timer("seen.append(lib.get_num_threads())", globals={"seen": seen, "lib": ddpgrad}, num_threads=1).timeit(
        1
    )
    assert set(seen) == {1}
    assert ddpgrad.get_num_threads() == before
    with pytest.raises(NotImplementedError, match="only Python"):
        Timer("1 + 1;", language="c++")
