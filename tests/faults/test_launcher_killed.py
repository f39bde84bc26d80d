"""The launcher itself is killed: ranks, loader workers and mpiexec's processes end with it."""

import signal
from itertools import product

import pytest
from matrices import thinned
from running import LIMIT_S, LOADER_PRELUDE

SCRIPT = """
from ddpgrad.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i):
        note(os.getpid())
        time.sleep(0.01)
        return i

if __name__ == "__main__":
    batches = iter(DataLoader(Data(), 2, num_workers=1))
    next(batches)
    wait()
    open(f"ready-{rank}", "w").close()
    while True:
        DURING
"""
DURING = {"loading": "next(batches)", "in a collective": "wait()", "in native code": "sum(range(10**9))"}


@pytest.mark.parametrize(
    ("during", "way"), thinned(product(DURING, ["own", "mpi"]), ("in native code", "own"), ("loading", "mpi"))
)
def test_nothing_outlives_a_killed_launcher(ddprun, during, way):
    script = ddprun.script(SCRIPT.replace("DURING", DURING[during]), LOADER_PRELUDE)
    running = ddprun.start("-n", "2", *(["--mpi"] if way == "mpi" else []), script)
    running.kill()
    running.stdout.close()
    running.stderr.close()
    assert running.wait(LIMIT_S) == -signal.SIGKILL
    # Nobody tells a loader's worker: it looks now and then whether its rank is there.
    ddprun.check_nothing_left()
