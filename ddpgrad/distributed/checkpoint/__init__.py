"""Checkpoints of nested state dicts, which any number of ranks loads: `torch.distributed.checkpoint`."""

from ...core.face import serve

serve(__name__)
