"""Utilities: data loading, and checkpoints that trade computation for memory."""

from . import checkpoint as checkpoint, data as data, deterministic as deterministic, hooks as hooks
from .swapping import swap_tensors as swap_tensors
