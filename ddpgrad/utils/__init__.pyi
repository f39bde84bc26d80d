"""Utilities: data loading, and checkpoints that trade computation for memory."""

from . import checkpoint as checkpoint, data as data, hooks as hooks
