"""A worker of a rank's DataLoader is slower than the loader's own limit. The campaign draws those that fail."""

import re

from running import LOADER_PRELUDE

SCRIPT = """
from ddpgrad.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self): return 12
    def __getitem__(self, i):
        note(os.getpid())
        if i == 5 and os.environ["RANK"] == "1": time.sleep(600)
        return i

if __name__ == "__main__":
    for batch in DataLoader(Data(), 2, num_workers=1, timeout=3):
        wait()
"""


def test_a_worker_that_takes_too_long_is_named(ddprun):
    result = ddprun.run("-n", "2", ddprun.script(SCRIPT, LOADER_PRELUDE))
    assert result.code == 1
    assert "ddprun: rank 1 failed (exit code 1); all ranks were ended." in result.said
    assert re.search(r"timed out after 3 seconds.*sample 5", "\n".join(result.said)), result.err
