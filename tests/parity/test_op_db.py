"""PyTorch's operator database against ddpgrad: what an op computes agrees, or the op says that it cannot."""

from collections.abc import Iterator

import pytest

pytest.importorskip("expecttest", reason="the operator database needs expecttest: pip install expecttest")

from coverage_reasons import left_out
from op_db import Limits, Result, check, entries, summary
from op_db_values import label

LIMITS = Limits(samples=8, few=2)
ENTRIES = {label(e): e for e in entries() if left_out(label(e)) is None}


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Iterator[list[Result]]:
    """Collects what every op came to, and prints the coverage line at the end, though the test passes."""
    found: list[Result] = []
    yield found
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{summary(found)}")


@pytest.mark.parametrize("name", ENTRIES)
def test_agrees_with_pytorch(name: str, results: list[Result]):
    result = check(ENTRIES[name], LIMITS)
    results.append(result)
    assert result.status != "wrong", result.detail
    if result.status == "missing":
        pytest.skip(f"missing: {result.detail}")
