"""Where PyTorch programs find `collate`."""

from . import collate as collate
