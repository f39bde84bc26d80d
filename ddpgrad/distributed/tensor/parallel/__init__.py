"""Modules whose parameters are divided among the ranks of a mesh, under PyTorch's names."""

from ....core.face import serve

serve(__name__)
