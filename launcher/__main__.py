"""`python -m ddpgrad.launcher`: the same as `ddprun`."""

from __future__ import annotations

import sys

from .cli.ddprun import main

if __name__ == "__main__":
    sys.exit(main())
