"""Images of random numbers, to try a program before its data is there."""

from __future__ import annotations

from typing import Any

from ... import Generator, randint, randn
from ..transforms.functional import to_pil_image
from .vision import Transform, VisionDataset


class FakeData(VisionDataset):
    """`size` pairs (PIL image, label), of which each depends only on its index: the same ones as torchvision's.

    image_size: (channels, height, width); random_offset: added to the index for other images.
    """

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__(transform=transform, target_transform=target_transform)
        self.size, self.image_size, self.num_classes = size, image_size, num_classes
        self.random_offset = random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= len(self):
            raise IndexError(f"FakeData: index {index} is out of range for {len(self)} images")
        draw = Generator().manual_seed(index + self.random_offset)
        image = randn(*self.image_size, generator=draw)
        label = randint(0, self.num_classes, (1,), generator=draw)
        return self.sample(to_pil_image(image), int(label))

    def __len__(self) -> int:
        return self.size
