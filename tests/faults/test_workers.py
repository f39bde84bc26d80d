"""A worker of a rank's DataLoader is killed, raises or stalls: rank, worker and sample are named."""

from __future__ import annotations

import re

import pytest
from matrices import thinned
from patience import patience
from running import LOADER_PRELUDE

SCRIPT = """
from ddpgrad.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self, fails): self.fails = fails
    def __len__(self): return 12
    def __getitem__(self, i):
        note(os.getpid())
        if self.fails and i == 5: FAULT
        return i

if __name__ == "__main__":
    for batch in DataLoader(Data(rank == 1), 2, num_workers=1, timeout=TIMEOUT):
        wait()
"""


@pytest.mark.parametrize(
    ("fault", "timeout", "said"),
    thinned(
        [
            ("os.kill(os.getpid(), signal.SIGKILL)", 0, r"DataLoader worker .*SIGKILL.*sample 5"),
            ("raise ValueError('a broken picture')", 0, r"(?s)DataLoader worker.*sample 5.*a broken picture"),
            ("time.sleep(600)", 3, r"timed out after 3 seconds.*sample 5"),
        ],
        "os.kill(os.getpid(), signal.SIGKILL)",
    ),
    ids=["killed", "raising", "stalled"],
)
def test_a_worker_that_fails_is_named(ddprun, fault, timeout, said):
    script = ddprun.script(SCRIPT.replace("FAULT", fault).replace("TIMEOUT", str(timeout)), LOADER_PRELUDE)
    result = ddprun.run("-n", "2", script)
    assert result.code == 1
    assert "ddprun: rank 1 failed (exit code 1); all ranks were ended." in result.said
    assert re.search(said, "\n".join(result.said)), result.err


def test_a_worker_that_stalls_is_named_by_the_watchdog(ddprun):
    script = ddprun.script(SCRIPT.replace("FAULT", "time.sleep(600)").replace("TIMEOUT", "0"), LOADER_PRELUDE)
    result = ddprun.run("-n", "2", "--watchdog", str(patience()), script)
    assert result.code == 3
    assert "ddprun: rank 1 failed (stalled); all ranks were ended." in result.said
    assert any("was in data loading" in line for line in result.said), result.err
    assert re.search(r"It waits for DataLoader worker 0 .* is reading sample 5", result.err), result.err
