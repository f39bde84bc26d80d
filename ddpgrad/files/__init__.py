"""Tensors in files: this package's own format, safetensors, and PyTorch's."""
