"""Two hosts on one machine: network namespaces, joined by a bridge, and MPICH between them."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_contract import DIGEST, digest_of_one_process

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "cluster"))

import namespaces  # noqa: E402

pytestmark = [pytest.mark.netns, pytest.mark.full]


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[namespaces.Box]:
    """`two_hosts(procs, command)` runs it in as many processes of each of two hosts."""
    if reason := namespaces.why_not():
        pytest.skip(reason)
    with namespaces.hosts(2) as run:
        yield run


# pytest-mpi skips what is called mpi
@pytest.mark.parametrize("transport", ["auto", "mpi"], ids="by-{}".format)
def test_the_contract_over_two_hosts(two_hosts, transport):
    ended = two_hosts(2, [sys.executable, HERE / "contract.py", transport])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert set(DIGEST.findall(ended.stdout)) == {digest_of_one_process(4)}
    if transport == "auto":
        assert re.search("taken: hierarchical", ended.stdout), ended.stdout
