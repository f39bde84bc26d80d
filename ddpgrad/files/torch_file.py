"""Files of PyTorch's `torch.save`, read by an installed PyTorch with `weights_only=True`."""

from __future__ import annotations

import importlib
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any

import ml_dtypes
import numpy as np

from ..backend import device as devices
from ..backend import dtype as dtypes
from ..core.errors import CheckpointError
from ..core.tensor import Size, Tensor

# A zip archive, and the pickles that PyTorch wrote before it used archives.
_BEGINNINGS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04")


def looks_like_one(file: IO[bytes]) -> bool:
    """True when the seekable `file` begins as PyTorch's files do; it stands where it stood."""
    here = file.tell()
    beginning = file.read(8)
    file.seek(here)
    # A file of ours begins with the length of its header, whose upper bytes are zero.
    return beginning.startswith(_BEGINNINGS) and not beginning.endswith(b"\0\0\0\0")


def read(file: IO[bytes], name: str, place: Callable[[np.ndarray], Tensor]) -> Any:
    """The object in PyTorch's file `name`, its tensors made anew by `place`.

    Raises CheckpointError without PyTorch, for a file that needs more than `weights_only=True`, and
    for a damaged one.
    """
    torch = _pytorch(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about PyTorch's own ways of storing, which nobody here chose
        try:
            obj = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # pickle.UnpicklingError, RuntimeError, EOFError … by the kind of damage
            first = str(error).partition("\n")[0]
            raise CheckpointError(f"PyTorch cannot read {name} with weights_only=True: {first}") from error
    return _Converter(torch, name, place).convert(obj)


def _pytorch(name: str) -> Any:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        torch = None
    if torch is None or torch.__name__ != "torch":
        raise CheckpointError(
            f"{name} is a file of PyTorch's, which holds a pickle; reading it needs PyTorch. Where PyTorch is installed, "
            'convert it once with `python -c \'import ddpgrad; ddpgrad.save(ddpgrad.load("IN.pt"), "OUT")\'` '
            "(not under --as-torch), or write the weights as safetensors there"
        )
    return torch


class _Converter:
    """Turns what PyTorch read into the same made of ddpgrad's tensors; shared memory stays shared per tensor."""

    def __init__(self, torch: Any, name: str, place: Callable[[np.ndarray], Tensor]) -> None:
        self._torch = torch
        self._name = name
        self._place = place
        self._known: dict[tuple[Any, ...], Tensor] = {}

    def convert(self, obj: Any) -> Any:
        torch, kind = self._torch, type(obj)
        if isinstance(obj, torch.Tensor):
            return self._tensor(obj)
        if isinstance(obj, dict):
            pairs = [(self.convert(key), self.convert(value)) for key, value in obj.items()]
            return OrderedDict(pairs) if isinstance(obj, OrderedDict) else dict(pairs)
        if kind is torch.Size:
            return Size(obj)
        if kind in (list, tuple, set, frozenset):
            return kind(self.convert(item) for item in obj)
        if isinstance(obj, torch.dtype):
            return dtypes.BY_NAME[str(obj).removeprefix("torch.")]
        if isinstance(obj, torch.device):
            return devices.Device(str(obj))
        if obj is None or kind in (bool, int, float, complex, str, bytes) or isinstance(obj, np.generic):
            return obj
        raise CheckpointError(
            f"{self._name} holds a {kind.__module__}.{kind.__qualname__}, which has no form here"
        )

    def _tensor(self, tensor: Any) -> Tensor:
        torch = self._torch
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise CheckpointError(f"{self._name} holds a sparse or quantized tensor, which has no form here")
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.requires_grad)
        if key not in self._known:
            plain = tensor.detach().resolve_conj().resolve_neg()
            if plain.dtype == torch.bfloat16:
                array = plain.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
            else:
                array = plain.numpy()
            out = self._place(np.array(array, order="C"))
            out.requires_grad = tensor.requires_grad
            self._known[key] = out
        return self._known[key]
