"""Where PyTorch programs find `collate` and `pin_memory`."""

from . import collate as collate
from . import pin_memory as pin_memory
