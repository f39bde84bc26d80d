"""`torch.func`: transforms of functions (derivatives, vmap), and functional calls of modules."""

from ..core.face import serve

serve(__name__)
