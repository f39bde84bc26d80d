"""`ddprun ckpt convert`: the same object in another form of file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from ddpgrad import Size, Tensor, device, dtype, load
from ddpgrad.core.errors import LaunchError
from ddpgrad.files import safetensors, tensor_file, torch_file
from ddpgrad.files.plain import PlainFile

from ..checkpoint.manifest import verify
from ..checkpoint.shards import in_folder

FORMS = ("pt", "safetensors", "ddpgrad")
_SUFFIXES = {".pt": "pt", ".pth": "pt", ".bin": "pt", ".safetensors": "safetensors", ".ddpgrad": "ddpgrad"}
# The object of a checkpoint that holds the random generators: no other program has them.
_GENERATORS = "generators"
# What PyTorch's torch.load reads with weights_only=True, besides containers.
_PYTORCH = (type(None), bool, int, float, complex, str, bytes, bytearray, Tensor, Size, dtype, device, set)
Filler = Callable[[IO[bytes]], None]


def read_file(path: Path) -> Any:
    """The object in a file of PyTorch's, of `ddpgrad.save`, or of safetensors; its bytes tell which."""
    with open(path, "rb") as file:
        if not torch_file.looks_like_one(file):
            _, metadata = tensor_file.read_layout(file, str(path))
            if metadata.get("format") != "ddpgrad":
                return safetensors.load_file(path)
    return load(path, map_location="cpu")


def read_checkpoint(path: Path, name: str | None) -> dict[str, Any]:
    """The states of the objects in a checkpoint by name: of `name`, or of all but the random generators."""
    manifest = verify(path)
    if name is not None and name not in manifest.objects:
        raise LaunchError(f"{path} holds no {name!r}; it holds {', '.join(manifest.objects)}")
    names = [name] if name is not None else [one for one in manifest.objects if one != _GENERATORS]
    source = in_folder(path, manifest)
    return {one: source.load(one) for one in names}


def convert(state: Any, source: str, name: str | None, output: Path, form: str | None) -> int:
    """Write `state`, or what it has under `name`, to `output`; the number of tensors in it.

    LaunchError names what the form cannot hold, before anything is written.
    """
    if name is not None:
        if not isinstance(state, dict) or name not in state:
            keys = f"; it holds {', '.join(map(str, state))}" if isinstance(state, dict) else ""
            raise LaunchError(f"{source} holds no {name!r}{keys}")
        state = state[name]
    form = form or _SUFFIXES.get(output.suffix)
    if form is None:
        raise LaunchError(
            f"{output}: no form belongs to that suffix; take {', '.join(_SUFFIXES)}, or give --to"
        )
    _write(output, _FILLERS[form](state))
    return sum(isinstance(value, (Tensor, np.ndarray)) for _, value in leaves(state, ""))


def _pt(state: Any) -> Filler:
    for place, value in leaves(state, ""):
        if not isinstance(value, _PYTORCH) or isinstance(value, np.generic):
            raise _refusal(place, value, "PyTorch reads with weights_only=True")
    return torch_file.TorchFile(state).write


def _safetensors(state: Any) -> Filler:
    arrays: dict[str, np.ndarray] = {}
    for place, value in leaves(state, ""):
        if not isinstance(value, (Tensor, np.ndarray)):
            raise _refusal(place, value, "safetensors files hold, which is tensors by name")
        array = value.detach().numpy() if isinstance(value, Tensor) else value
        if not tensor_file.is_storable(array.dtype):
            raise _refusal(place, value, "safetensors files hold: they have no such elements")
        if place in arrays:
            raise LaunchError(f"two tensors would have the name {place!r}: convert one part at a time")
        arrays[place] = np.asarray(array, order="C")
    if not arrays:
        raise LaunchError("there are no tensors in it")
    arrays = dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize))  # keeps all aligned
    return lambda file: tensor_file.write(file, arrays, {"format": "pt"}, checksum=False)


_FILLERS: dict[str, Callable[[Any], Filler]] = {
    "pt": _pt,
    "safetensors": _safetensors,
    "ddpgrad": lambda state: PlainFile(state).write,
}


def _refusal(place: str, value: Any, form: str) -> LaunchError:
    kind = f"tensor of {value.dtype}" if isinstance(value, (Tensor, np.ndarray)) else type(value).__name__
    kind = f"NumPy {kind.replace('tensor', 'array')}" if isinstance(value, np.ndarray) else kind
    return LaunchError(
        f"{place or 'the object'} is a {kind}, which is not among what {form}. Convert another part (ddprun ckpt "
        "convert PATH OBJECT FILE), or take another form (--to)"
    )


def _write(output: Path, fill: Filler) -> None:
    try:
        with open(output, "xb") as file:
            try:
                fill(file)
            except BaseException:
                output.unlink()  # never a part of a file
                raise
    except FileExistsError:
        raise LaunchError(f"{output} exists; give another name") from None


def leaves(state: Any, place: str) -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of each leaf of `state`."""
    pairs: Any = ()
    if isinstance(state, dict):
        pairs = state.items()
    elif isinstance(state, (list, tuple)) and not isinstance(state, Size):
        pairs = enumerate(state)
    else:
        yield place, state
    for key, value in pairs:
        yield from leaves(value, f"{place}.{key}" if place else str(key))
