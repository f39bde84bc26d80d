"""VisionDataset: the base of datasets of labelled images."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ...utils.data import Dataset

Transform = Callable[[Any], Any]


class VisionDataset(Dataset[Any]):
    """Images and labels below the folder `root`.

    transforms: a function of (image, label); or transform and target_transform, one for each.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = "",
        transforms: Callable[[Any, Any], tuple[Any, Any]] | None = None,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
    ) -> None:
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError("Only transforms or transform/target_transform can be passed as argument")
        self.root = Path(root).expanduser()
        self.transform = transform
        self.target_transform = target_transform
        self.transforms = transforms

    def transformed(self, image: np.ndarray, target: Any) -> tuple[Any, Any]:
        """The sample of an image (H, W) or (H, W, C) of bytes: a PIL image, transformed, and the label."""
        return self.sample(pillow().fromarray(image), target)

    def sample(self, picture: Any, target: Any) -> tuple[Any, Any]:
        """A PIL image and its label, both transformed."""
        if self.transforms is not None:
            return self.transforms(picture, target)
        if self.transform is not None:
            picture = self.transform(picture)
        return picture, target if self.target_transform is None else self.target_transform(target)

    def missing(self, names: list[str]) -> RuntimeError:
        """The error that says which files are not there."""
        return RuntimeError(
            f"Dataset not found. You can use download=True to download it. {type(self).__name__}: {self.root} "
            f"lacks {', '.join(names)}"
        )


def pillow() -> Any:
    """The module PIL.Image."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            'samples of this dataset are PIL images, and Pillow is not installed: pip install "ddpgrad[images]". '
            "The attributes `data` and `targets` hold all images and labels without it"
        ) from error
    return Image
