"""MNIST and Fashion-MNIST: 70,000 images of 28x28 pixels each, in four IDX files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from ...core.errors import DataError
from ...core.tensor import Tensor, wrap
from . import idx
from .download import fetch
from .vision import Transform, VisionDataset

_SIDE = 28
_LARGEST = 32 << 20  # bytes that a mirror may send for one file
_FILES = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]


class MNIST(VisionDataset):
    """Handwritten digits (http://yann.lecun.com/exdb/mnist/): 60,000 for training, 10,000 for testing.

    The files, compressed or not, lie in `root/MNIST/raw`, where torchvision puts them, or in `root` itself.
    A sample is (PIL image, label). `data` holds the images, uint8 (N, 28, 28), `targets` the labels, int64
    (N,). RuntimeError if files are missing, DataError if one is damaged.
    """

    mirrors: ClassVar[Sequence[str]] = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    )
    checksums: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte.gz": "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    }
    classes: ClassVar[Sequence[str]] = (
        "0 - zero", "1 - one", "2 - two", "3 - three", "4 - four",
        "5 - five", "6 - six", "7 - seven", "8 - eight", "9 - nine",
    )  # fmt: skip

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
        if download:
            for name in _FILES:
                if self._find(name) is None:
                    fetch(self.raw_folder, name, self.checksums[name], self.mirrors, _LARGEST)
        self.data, self.targets = self._read("train" if train else "t10k")

    @property
    def raw_folder(self) -> Path:
        """Where downloaded files are put."""
        return self.root / type(self).__name__ / "raw"

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.classes)}

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.transformed(self.data._array[index], int(self.targets._array[index]))

    def __len__(self) -> int:
        return len(self.data)

    def _find(self, name: str) -> Path | None:
        """The file `name`, compressed or not."""
        places = [
            folder / n for folder in (self.raw_folder, self.root) for n in (name, name.removesuffix(".gz"))
        ]
        return next((place for place in places if place.is_file()), None)

    def _read(self, part: str) -> tuple[Tensor, Tensor]:
        names = [name for name in _FILES if name.startswith(part)]
        paths = [path for name in names if (path := self._find(name)) is not None]
        if len(paths) < len(names):
            raise self.missing([name for name in names if self._find(name) is None])
        images = idx.read(paths[0], (None, _SIDE, _SIDE))
        labels = idx.read(paths[1], (None,))
        if len(images) != len(labels):
            raise DataError(f"{paths[1]}: {len(labels)} labels for the {len(images)} images of {paths[0]}")
        if len(labels) and labels.max() >= len(self.classes):
            raise DataError(
                f"{paths[1]}: a label is {labels.max()}; labels lie between 0 and {len(self.classes) - 1}"
            )
        return wrap(images), wrap(labels.astype("int64"))


class FashionMNIST(MNIST):
    """Articles of clothing, in MNIST's format (https://github.com/zalandoresearch/fashion-mnist)."""

    mirrors = (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    )
    checksums: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    }
    classes = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
        "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    )  # fmt: skip
