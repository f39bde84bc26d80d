"""Functions of functions (`torch.func`): derivatives, a mapped loop, and calls of modules without their state."""

from ..core.face import serve

serve(__name__)
