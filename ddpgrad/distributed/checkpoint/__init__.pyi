"""Checkpoints of nested state dicts, which any number of ranks loads: `torch.distributed.checkpoint`."""

from .api import CheckpointException as CheckpointException
from .default_planner import DefaultLoadPlanner as DefaultLoadPlanner, DefaultSavePlanner as DefaultSavePlanner
from .filesystem import FileSystemReader as FileSystemReader, FileSystemWriter as FileSystemWriter
from .hf_storage import (
    HuggingFaceStorageReader as HuggingFaceStorageReader, HuggingFaceStorageWriter as HuggingFaceStorageWriter,
)
from .metadata import (
    BytesStorageMetadata as BytesStorageMetadata, ChunkStorageMetadata as ChunkStorageMetadata, Metadata as Metadata,
    TensorStorageMetadata as TensorStorageMetadata,
)
from .planner import (
    LoadPlan as LoadPlan, LoadPlanner as LoadPlanner, ReadItem as ReadItem, SavePlan as SavePlan,
    SavePlanner as SavePlanner, WriteItem as WriteItem,
)
from .state_dict_loader import load as load, load_state_dict as load_state_dict
from .state_dict_saver import async_save as async_save, save as save, save_state_dict as save_state_dict
from .storage import StorageReader as StorageReader, StorageWriter as StorageWriter
