"""Published datasets of images, in the formats that they are published in: torchvision.datasets, a part of it."""

from .cifar import CIFAR10 as CIFAR10
from .cifar import CIFAR100 as CIFAR100
from .mnist import MNIST as MNIST
from .mnist import FashionMNIST as FashionMNIST
from .vision import VisionDataset as VisionDataset
