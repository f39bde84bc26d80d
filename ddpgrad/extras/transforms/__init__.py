"""Image transforms for training: the part of torchvision.transforms that most programs use.

Images are PIL images (the extra `images` brings Pillow), or tensors (…, C, H, W). Random transforms draw from
the default generator, and draw what torchvision draws, so that the same seed gives the same crops.
"""

from ...core.face import serve

serve(__name__)
