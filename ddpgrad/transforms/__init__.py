"""Transformations of images for training: torchvision.transforms, in the part that most programs use.

Images are PIL images (the extra `images` brings Pillow), or tensors (…, C, H, W). Random transforms draw from
the default generator, and draw what torchvision draws, so that the same seed gives the same crops.
"""

import sys

from . import functional as functional
from .functional import InterpolationMode as InterpolationMode
from .geometry import CenterCrop as CenterCrop
from .geometry import Pad as Pad
from .geometry import RandomCrop as RandomCrop
from .geometry import RandomHorizontalFlip as RandomHorizontalFlip
from .geometry import RandomResizedCrop as RandomResizedCrop
from .geometry import RandomRotation as RandomRotation
from .geometry import RandomVerticalFlip as RandomVerticalFlip
from .geometry import Resize as Resize
from .pixels import ColorJitter as ColorJitter
from .pixels import Compose as Compose
from .pixels import ConvertImageDtype as ConvertImageDtype
from .pixels import GaussianBlur as GaussianBlur
from .pixels import Grayscale as Grayscale
from .pixels import Lambda as Lambda
from .pixels import Normalize as Normalize
from .pixels import PILToTensor as PILToTensor
from .pixels import RandomApply as RandomApply
from .pixels import RandomErasing as RandomErasing
from .pixels import RandomGrayscale as RandomGrayscale
from .pixels import ToPILImage as ToPILImage
from .pixels import ToTensor as ToTensor

transforms = sys.modules[__name__]
"""torchvision defines these classes in a module of that name, and programs import it."""
