"""The layers under the names of PyTorch's files, for programs that import `nn.modules.batchnorm._BatchNorm` and the like."""

from __future__ import annotations

import sys
from types import ModuleType

from .. import (
    activation,
    adaptive,
    attention,
    batchnorm,
    containers,
    convolution,
    distance,
    dropout,
    embedding,
    fold,
    lazy,
    lazy_convolution,
    linear,
    loss,
    margin_loss,
    module,
    normalization,
    padding,
    pooling,
    recurrent,
    recurrent_cell,
    sync_batchnorm,
    transformer,
    upsampling,
)
from ..module import Module as Module
from . import utils

_PLACES = {
    "activation": activation,
    "adaptive": adaptive,
    "batchnorm": batchnorm,
    "channelshuffle": fold,
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

# What PyTorch has in one file and this package in several: where else to look.
_MORE = {
    "activation": (attention,),
    "batchnorm": (lazy, sync_batchnorm),
    "conv": (lazy_convolution,),
    "instancenorm": (lazy,),
    "linear": (lazy, attention),
    "loss": (margin_loss,),
    "rnn": (recurrent_cell,),
}


def _joined(name: str, parts: tuple[ModuleType, ...]) -> ModuleType:
    """A module with the names of several."""
    whole = ModuleType(f"{__name__}.{name}", parts[0].__doc__)
    for part in reversed(parts):
        whole.__dict__.update({k: v for k, v in vars(part).items() if not k.startswith("__")})
    return whole


for _name, _module in _PLACES.items():
    if _name in _MORE:
        _module = _joined(_name, (_module, *_MORE[_name]))
    sys.modules[f"{__name__}.{_name}"] = _module
    globals()[_name] = _module
    for _class in vars(_module).values():
        if isinstance(_class, type) and issubclass(_class, Module) and not _class.__name__.startswith("_"):
            globals()[_class.__name__] = _class
