"""Datasets with one folder of files for each class, as ImageNet has."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .vision import Transform, VisionDataset, pillow

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class DatasetFolder(VisionDataset):
    """The files `root/CLASS/.../name`, each with the number of its class; classes in alphabetical order.

    loader: makes a sample of a path. The files are those with one of the endings `extensions`, or those
    for which is_valid_file is true. FileNotFoundError when there is no class, or, without allow_empty,
    a class without files. `samples` holds the pairs (path, label), in the order of their paths.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        loader: Callable[[str], Any],
        extensions: tuple[str, ...] | None = None,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        if (extensions is None) == (is_valid_file is None):
            raise ValueError("DatasetFolder: give either extensions or is_valid_file")
        self.loader, self.extensions = loader, extensions
        self.classes, self.class_to_idx = self.find_classes(self.root)
        valid = is_valid_file or (lambda path: path.lower().endswith(extensions or ()))
        self.samples = [
            (str(path), number)
            for name, number in self.class_to_idx.items()
            for path in _files(self.root / name)
            if valid(str(path))
        ]
        self.targets = [number for _, number in self.samples]
        empty = sorted(set(self.classes) - {self.classes[number] for number in self.targets})
        if empty and not allow_empty:
            endings = f". Supported extensions are: {', '.join(extensions)}" if extensions else ""
            raise FileNotFoundError(f"Found no valid file for the classes {', '.join(empty)}{endings}")

    def find_classes(self, directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
        """The names of the classes, and the number of each. A subclass may answer with others."""
        classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
        if not classes:
            raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
        return classes, {name: number for number, name in enumerate(classes)}

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, label = self.samples[index]
        return self.sample(self.loader(path), label)

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """The images `root/CLASS/.../name.png`, as (PIL image in RGB, label); see `DatasetFolder`."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        loader: Callable[[str], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(
            root,
            loader or default_loader,
            extensions,
            transform,
            target_transform,
            is_valid_file,
            allow_empty,
        )
        self.imgs = self.samples


def default_loader(path: str) -> Any:
    """The PIL image of a file, in RGB."""
    with open(path, "rb") as file:
        return pillow().open(file).convert("RGB")


pil_loader = default_loader


def _files(folder: Path) -> list[Path]:
    """All files below `folder`, links to folders followed: one folder after the other, by name."""
    found = sorted((Path(place), sorted(names)) for place, _, names in os.walk(folder, followlinks=True))
    return [place / name for place, names in found for name in names]
