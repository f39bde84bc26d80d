"""Published datasets of images, in the formats that they are published in: torchvision.datasets, a part of it."""

from .cifar import CIFAR10 as CIFAR10, CIFAR100 as CIFAR100
from .fake import FakeData as FakeData
from .folder import DatasetFolder as DatasetFolder, ImageFolder as ImageFolder
from .mnist import FashionMNIST as FashionMNIST, MNIST as MNIST
from .vision import VisionDataset as VisionDataset
