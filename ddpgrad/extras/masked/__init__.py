"""`torch.masked`: functions of what a mask keeps, and tensors that have one."""

from ...core.face import serve

serve(__name__)
