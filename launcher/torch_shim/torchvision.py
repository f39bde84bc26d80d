"""What a process that was started by a program under `as_torch` finds as `torchvision`."""

import importlib
import sys

from ddpgrad.launcher import as_torch

as_torch.install()
del sys.modules["torchvision"]
importlib.import_module("torchvision")
