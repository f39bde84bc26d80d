"""Optimizers over flat memory, and learning rate schedules."""

from ..core.face import serve

serve(__name__)
