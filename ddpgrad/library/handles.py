"""`torch.ops.aten`, and the ops of libraries in C++ that are written here too."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any


def pytorchs() -> Any:
    """`torch.ops.aten`."""
    return import_module(f"{__name__.rpartition('.')[0]}.aten").ATEN


def collectives(name: str) -> Any:
    """`torch.ops.c10d` and its like."""
    return import_module(f"{__name__.partition('.')[0]}.distributed.collective_ops").NAMESPACES[name]


_WRITTEN_HERE = {
    "torchaudio/lib/_torchaudio": "extras.torchaudio_ops",
    "torchaudio/lib/libtorchaudio": "extras.torchaudio_ops",
    "torchvision/_C": "extras.torchvision_ops",
    "torchvision/_C_stable": "extras.torchvision_ops",
}
"""Libraries of C++ ops, by the ends of their paths without what follows the first dot of the name -> the module that defines the same ops here."""


def load_library(path: Any) -> None:
    """Define the ops of a library in C++, where they are written here too: those of torchvision and torchaudio.

    Raises OSError for any other, as for a file that cannot be loaded: a library of PyTorch's C++ ops needs PyTorch.
    """
    place = Path(path).parent / Path(path).name.partition(".")[0]
    module = next(
        (module for end, module in _WRITTEN_HERE.items() if place.as_posix().endswith(f"/{end}")), None
    )
    if module is None:
        raise OSError(f"torch.ops.load_library({str(path)!r}): C++ ops of PyTorch's do not load into ddpgrad")
    import_module(f"{__name__.partition('.')[0]}.{module}")
