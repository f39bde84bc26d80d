"""Data loading: datasets, samplers, and the DataLoader that turns them into batches."""

from ...compat.absent import IterDataPipe as IterDataPipe, MapDataPipe as MapDataPipe
from . import _utils as _utils, tar as tar
from .collate import default_collate as default_collate, default_convert as default_convert
from .dataloader import DataLoader as DataLoader
from .dataset import (
    ChainDataset as ChainDataset, ConcatDataset as ConcatDataset, Dataset as Dataset,
    IterableDataset as IterableDataset, random_split as random_split, StackDataset as StackDataset,
    Subset as Subset, TensorDataset as TensorDataset,
)
from .distributed import DistributedSampler as DistributedSampler
from .sampler import (
    BatchSampler as BatchSampler, RandomSampler as RandomSampler, Sampler as Sampler,
    SequentialSampler as SequentialSampler, SubsetRandomSampler as SubsetRandomSampler,
    WeightedRandomSampler as WeightedRandomSampler,
)
from .worker import get_worker_info as get_worker_info, WorkerInfo as WorkerInfo
