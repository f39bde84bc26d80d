"""Published datasets of images, in their original formats: a part of torchvision.datasets."""

from ...core.face import serve

serve(__name__)
