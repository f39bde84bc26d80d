"""The module `torch` of the processes that a program under `as_torch` starts."""

from ddpgrad.launcher import as_torch

as_torch.install()
