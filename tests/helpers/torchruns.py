"""The commands of torchrun: of ranks that anything runs, and of ranks that PyTorch itself runs over Gloo.

As a program, `torchruns.py PROGRAM ARGUMENTS` is what each of PyTorch's ranks runs.
"""

import os
import runpy
import sys
from pathlib import Path

from started_by_hand import free_port


def torchrun(ranks: int) -> list[str]:
    """What a program and its arguments, or further options and these, are put behind."""
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    return [*start, "--master-port", str(free_port())]


def pytorchs_torchrun(ranks: int) -> list[str]:
    """The same for what PyTorch runs, without the end of the interpreter.

    In that, a thread of Gloo's that still runs aborts the process ("terminate called without an active
    exception"), and torchrun then ends the other ranks before they have written their results.
    """
    return [*torchrun(ranks), __file__]


if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
