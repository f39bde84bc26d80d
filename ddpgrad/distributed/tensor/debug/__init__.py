"""What DTensors and models of them send, and where they lie, under PyTorch's names."""

from ....core.face import serve

serve(__name__)
