"""CIFAR-10 and CIFAR-100: 60,000 colour images of 32x32 pixels, in the binary version of their files.

A record is the label (CIFAR-100: the coarse one, then the fine one) and 3,072 bytes: the red plane, the
green, the blue. Source: https://www.cs.toronto.edu/~kriz/cifar.html ("Binary version"). The version for
Python is a pickle, which can run code when it is read, and is not used here.
"""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...core.errors import DataError
from .download import fetch
from .vision import Transform, VisionDataset

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
_LARGEST = 256 << 20  # bytes that a mirror may send


class CIFAR10(VisionDataset):
    """Ten kinds of vehicles and animals: 50,000 images for training, 10,000 for testing.

    The archive, or the folder that it holds, lies in `root`. A sample is (PIL image, label). `data` holds the
    images, a uint8 array (N, 32, 32, 3), `targets` the labels, a list. RuntimeError if files are missing,
    DataError if one is damaged.
    """

    mirrors: ClassVar[Sequence[str]] = ("https://www.cs.toronto.edu/~kriz/",)
    archive: ClassVar[str] = "cifar-10-binary.tar.gz"
    checksum: ClassVar[str] = "md5:c32a1d4ab5d03f1284b67883e8d87530"
    folder: ClassVar[str] = "cifar-10-batches-bin"
    files: ClassVar[tuple[Sequence[str], Sequence[str]]] = (
        [f"data_batch_{i}.bin" for i in range(1, 6)],
        ["test_batch.bin"],
    )
    names_file: ClassVar[str] = "batches.meta.txt"
    label_bytes: ClassVar[int] = 1  # of which the last is the label

    def __init__(
        self,
        root: str | os.PathLike[str],
        train: bool = True,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        names = [*self.files[0 if train else 1], self.names_file]
        contents = self._contents(names, download)
        self.classes = contents.pop(self.names_file).decode("ascii").split()
        parts = [self._parse(name, content) for name, content in contents.items()]
        self.data = np.concatenate([images for images, _ in parts])
        self.targets: list[int] = np.concatenate([labels for _, labels in parts]).tolist()

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.classes)}

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.transformed(self.data[index], self.targets[index])

    def __len__(self) -> int:
        return len(self.data)

    def _contents(self, names: list[str], download: bool) -> dict[str, bytes]:
        """The files of that names, from the folder or else from the archive."""
        folder, archive = self.root / self.folder, self.root / self.archive
        if all((folder / name).is_file() for name in names):
            return {name: (folder / name).read_bytes() for name in names}
        if download:
            fetch(self.root, self.archive, self.checksum, self.mirrors, _LARGEST)
        if not archive.is_file():
            raise self.missing([f"{self.folder}/{names[0]} …", f"or {self.archive}"])
        return _members(archive, self.folder, names)

    def _parse(self, name: str, content: bytes) -> tuple[np.ndarray, np.ndarray]:
        """(images, labels) of a file."""
        size = self.label_bytes + _PIXELS
        if len(content) % size:
            raise DataError(f"{self.root}: {name} has {len(content)} bytes, which are not records of {size}")
        records = np.frombuffer(content, np.uint8).reshape(-1, size)
        labels, pixels = records[:, self.label_bytes - 1], records[:, self.label_bytes :]
        if len(labels) and labels.max() >= len(self.classes):
            raise DataError(
                f"{self.root}: a label in {name} is {labels.max()}, of {len(self.classes)} classes"
            )
        planes = pixels.reshape(-1, 3, _SIDE, _SIDE)
        return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels


class CIFAR100(CIFAR10):
    """A hundred kinds of things, plants and animals: 50,000 images for training, 10,000 for testing."""

    archive = "cifar-100-binary.tar.gz"
    checksum = "md5:03b5dce01913d631647c71ecec9e9cb8"
    folder = "cifar-100-binary"
    files = (["train.bin"], ["test.bin"])
    names_file = "fine_label_names.txt"
    label_bytes = 2


def _members(archive: Path, folder: str, names: list[str]) -> dict[str, bytes]:
    """Files of a tar archive, read without unpacking it."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = member.name.removeprefix("./").removeprefix(f"{folder}/")
                file = tar.extractfile(member) if name in names else None
                if file is not None:
                    found[name] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{archive}: the archive is damaged: {error}") from error
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(f"{archive}: {folder}/{missing[0]} is not in the archive")
    return {name: found[name] for name in names}
