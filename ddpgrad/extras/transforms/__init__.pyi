"""Transformations of images for training: torchvision.transforms, in the part that most programs use."""

from . import functional as functional
from .functional import InterpolationMode as InterpolationMode
from .geometry import (
    CenterCrop as CenterCrop, Pad as Pad, RandomCrop as RandomCrop,
    RandomHorizontalFlip as RandomHorizontalFlip, RandomResizedCrop as RandomResizedCrop,
    RandomRotation as RandomRotation, RandomVerticalFlip as RandomVerticalFlip, Resize as Resize,
)
from .pixels import (
    ColorJitter as ColorJitter, Compose as Compose, ConvertImageDtype as ConvertImageDtype,
    GaussianBlur as GaussianBlur, Grayscale as Grayscale, Lambda as Lambda, Normalize as Normalize,
    PILToTensor as PILToTensor, RandomApply as RandomApply, RandomErasing as RandomErasing,
    RandomGrayscale as RandomGrayscale, ToPILImage as ToPILImage, ToTensor as ToTensor,
)
