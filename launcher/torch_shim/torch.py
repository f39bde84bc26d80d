"""What a process that was started by a program under `as_torch` finds as `torch`."""

from ddpgrad.launcher import as_torch

as_torch.install()
