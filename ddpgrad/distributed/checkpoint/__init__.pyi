"""Checkpoints of nested state dicts, which any number of ranks loads: `torch.distributed.checkpoint`."""

from .api import CheckpointException as CheckpointException
from .default_planner import DefaultLoadPlanner as DefaultLoadPlanner, DefaultSavePlanner as DefaultSavePlanner
from .filesystem import FileSystemReader as FileSystemReader, FileSystemWriter as FileSystemWriter
from .metadata import (
    BytesStorageMetadata as BytesStorageMetadata, Metadata as Metadata,
    TensorStorageMetadata as TensorStorageMetadata,
)
from .state_dict_loader import load as load, load_state_dict as load_state_dict
from .state_dict_saver import async_save as async_save, save as save, save_state_dict as save_state_dict
