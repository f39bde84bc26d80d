"""Transformations of images for training: torchvision.transforms, in the part that most programs use.

Images are PIL images (the extra `images` brings Pillow), or tensors (…, C, H, W). Random transforms draw from
the default generator, and draw what torchvision draws, so that the same seed gives the same crops.
"""

from . import functional as functional
from .functional import InterpolationMode as InterpolationMode
from .geometry import CenterCrop as CenterCrop
from .geometry import Pad as Pad
from .geometry import RandomCrop as RandomCrop
from .geometry import RandomHorizontalFlip as RandomHorizontalFlip
from .geometry import RandomResizedCrop as RandomResizedCrop
from .geometry import RandomVerticalFlip as RandomVerticalFlip
from .geometry import Resize as Resize
from .pixels import Compose as Compose
from .pixels import ConvertImageDtype as ConvertImageDtype
from .pixels import Grayscale as Grayscale
from .pixels import Lambda as Lambda
from .pixels import Normalize as Normalize
from .pixels import PILToTensor as PILToTensor
from .pixels import RandomApply as RandomApply
from .pixels import ToPILImage as ToPILImage
from .pixels import ToTensor as ToTensor
