"""Tensors that lie on several ranks, under PyTorch's names."""

from ...core.face import serve

serve(__name__)
