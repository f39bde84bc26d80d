"""Utilities: data loading, and checkpoints that trade computation for memory."""

from ..core.face import serve

serve(__name__)
