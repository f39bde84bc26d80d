"""Data parallelism with parameters, gradients and optimizer state divided among the ranks."""

from ...core.face import serve

serve(__name__)
