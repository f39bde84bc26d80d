"""`torch.fx`: a module's calls as a graph, which programs read and change, and run again as a module."""

from ...core.face import serve

serve(__name__)
