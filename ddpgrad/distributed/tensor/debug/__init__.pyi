"""What DTensors and models of them send, and where they lie, under PyTorch's names."""

from .comm_mode import CommDebugMode as CommDebugMode
from .visualize import visualize_sharding as visualize_sharding
