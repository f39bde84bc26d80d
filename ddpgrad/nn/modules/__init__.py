"""The layers under the names of PyTorch's files, for programs that import `nn.modules.batchnorm._BatchNorm` and the like."""

from __future__ import annotations

import sys

from .. import (
    activation,
    adaptive,
    batchnorm,
    containers,
    convolution,
    distance,
    dropout,
    embedding,
    fold,
    lazy,
    linear,
    loss,
    module,
    normalization,
    padding,
    pooling,
    recurrent,
    transformer,
    upsampling,
)
from ..module import Module as Module
from . import utils

_PLACES = {
    "activation": activation,
    "adaptive": adaptive,
    "batchnorm": batchnorm,
    "container": containers,
    "conv": convolution,
    "distance": distance,
    "dropout": dropout,
    "flatten": linear,
    "fold": fold,
    "instancenorm": batchnorm,
    "lazy": lazy,
    "linear": linear,
    "loss": loss,
    "module": module,
    "normalization": normalization,
    "padding": padding,
    "pixelshuffle": fold,
    "pooling": pooling,
    "rnn": recurrent,
    "sparse": embedding,
    "transformer": transformer,
    "upsampling": upsampling,
    "utils": utils,
}

for _name, _module in _PLACES.items():
    sys.modules[f"{__name__}.{_name}"] = _module
    globals()[_name] = _module

__all__ = [
    "Module", "activation", "adaptive", "batchnorm", "container", "conv", "distance", "dropout", "flatten", "fold",
    "instancenorm", "lazy", "linear", "loss", "module", "normalization", "padding", "pixelshuffle", "pooling", "rnn",
    "sparse", "transformer", "upsampling", "utils",
]  # fmt: skip
