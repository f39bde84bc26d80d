"""PyTorch's own ops, as handles that libraries keep in tables, and the ops of libraries in C++ that are written here too."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from ..core.tensor import Tensor


class AtenOp:
    """A handle of one of PyTorch's own ops, which libraries keep in tables; calling it calls the Tensor method."""

    def __init__(self, name: str, overload: str = "") -> None:
        self.__name__ = name
        self._overload = overload

    def __getattr__(self, name: str) -> AtenOp:
        if name.startswith("_") or self._overload:
            raise AttributeError(f"{self!r} has no attribute '{name}'", name=name, obj=self)
        return AtenOp(self.__name__, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        method = getattr(Tensor, self.__name__, None)
        if method is None:
            raise NotImplementedError(f"{self!r}: ddpgrad's Tensor has no method of that name")
        return method(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AtenOp) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"torch.ops.aten.{self.__name__}" + (f".{self._overload}" if self._overload else "")


class Aten:
    """`torch.ops.aten`: handles by any name."""

    def __getattr__(self, name: str) -> AtenOp:
        if name.startswith("__"):
            raise AttributeError(f"'torch.ops.aten' has no attribute '{name}'", name=name, obj=self)
        return AtenOp(name)


_WRITTEN_HERE = {
    "torchaudio/lib/_torchaudio": "extras.torchaudio_ops",
    "torchaudio/lib/libtorchaudio": "extras.torchaudio_ops",
    "torchvision/_C": "extras.torchvision_ops",
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
