"""Published datasets of images, in the formats that they are published in: torchvision.datasets, a part of it."""

from .cifar import CIFAR10 as CIFAR10
from .cifar import CIFAR100 as CIFAR100
from .fake import FakeData as FakeData
from .folder import DatasetFolder as DatasetFolder
from .folder import ImageFolder as ImageFolder
from .mnist import MNIST as MNIST
from .mnist import FashionMNIST as FashionMNIST
from .vision import VisionDataset as VisionDataset
