"""The module `torchvision` of the processes that a program under `as_torch` starts."""

import importlib
import sys

from ddpgrad.launcher import as_torch

as_torch.install()
del sys.modules["torchvision"]
importlib.import_module("torchvision")
