"""Published datasets of images, in the formats that they are published in: torchvision.datasets, a part of it."""

from ...core.face import serve

serve(__name__)
