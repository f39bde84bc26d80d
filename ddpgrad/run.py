"""`python -m ddpgrad.run`: the same as `ddprun`, as `python -m torch.distributed.run` is torchrun.

Started by mpiexec, srun or torchrun it is no launcher, but runs the script as one of their ranks:

    mpirun -n 2 python -m ddpgrad.run --as-torch train.py
    torchrun --nproc-per-node 2 --no-python python -m ddpgrad.run --as-torch train.py
"""

from __future__ import annotations

import sys

from .launcher.cli.ddprun import main

if __name__ == "__main__":
    sys.exit(main())
