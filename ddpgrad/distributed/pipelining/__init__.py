"""Pipeline parallelism: each rank has some layers of a model, and micro-batches pass through them, under PyTorch's names."""

from ...core.face import serve

serve(__name__)
