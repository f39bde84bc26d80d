"""The layers, under the names of PyTorch's files: `nn.modules.batchnorm._BatchNorm` and the like."""

from ...core.face import serve

serve(__name__)
