"""Samples from tar archives in WebDataset's layout: files of one sample are neighbours and share a name.

    train-000.tar: dog1.jpg dog1.cls dog2.jpg dog2.cls …

The name up to the first dot of its last part is the sample's key, the rest is the field. Archives are read
from beginning to end, as disks and networks like it. Source: https://github.com/webdataset/webdataset
"""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from ...core.errors import DataError
from ...random.generator import Generator
from .dataset import IterableDataset
from .worker import get_worker_info

_PIECE = 1 << 20  # bytes


class TarDataset(IterableDataset[dict[str, Any]]):
    """The samples of tar archives ("shards"), each a dict: '__key__', '__url__' (its archive), and bytes by field.

    shards: paths of archives, compressed or not; every rank and every worker reads whole archives of its own.
    rank, world_size: by default those of the default process group, or one rank. decode: functions of bytes
    by field, such as {"cls": int}. shuffle: the archives come in another order in every epoch (`set_epoch`),
    the same on all ranks.

    Ranks read unequal numbers of samples where archives hold unequal numbers. ValueError if there are fewer
    archives than ranks and workers; DataError, which names the archive and the file, if one is damaged.
    """

    def __init__(
        self,
        shards: Sequence[str | os.PathLike[str]],
        rank: int | None = None,
        world_size: int | None = None,
        decode: dict[str, Callable[[bytes], Any]] | None = None,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        self.shards = [os.fspath(shard) for shard in shards]
        if rank is None or world_size is None:
            from ... import distributed

            ready = distributed.is_initialized()
            rank = (distributed.get_rank() if ready else 0) if rank is None else rank
            world_size = (distributed.get_world_size() if ready else 1) if world_size is None else world_size
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} lies outside the interval [0, {world_size - 1}]")
        self.rank = rank
        self.world_size = world_size
        self.decode = decode or {}
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the archives, where they are shuffled."""
        self.epoch = epoch

    def own_shards(self) -> list[str]:
        """The archives that this rank, and in a worker this worker, reads."""
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        readers = self.world_size * workers
        if len(self.shards) < readers:
            raise ValueError(
                f"TarDataset: {len(self.shards)} archives for {self.world_size} ranks with {workers} worker(s) each; "
                f"at least {readers} are needed, so that each has one. Use fewer workers, or smaller archives"
            )
        order = np.arange(len(self.shards))
        if self.shuffle:
            order = Generator().manual_seed(self.seed + self.epoch).permutation(len(order))
        return [self.shards[i] for i in order[self.rank :: self.world_size][worker::workers]]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for shard in self.own_shards():
            for key, files in itertools.groupby(_files(shard), key=lambda file: file[0]):
                sample: dict[str, Any] = {"__key__": key, "__url__": shard}
                for _, field, data in files:
                    if field in sample:
                        raise DataError(f"{shard}: the sample {key!r} has two files for the field {field!r}")
                    sample[field] = self._decoded(shard, key, field, data)
                yield sample

    def _decoded(self, shard: str, key: str, field: str, data: bytes) -> Any:
        if field not in self.decode:
            return data
        try:
            return self.decode[field](data)
        except Exception as error:
            error.add_note(f"({shard}: decoding the field {field!r} of the sample {key!r})")
            raise


class _Member(tarfile.TarInfo):
    """A header that must be whole: tarfile itself takes a damaged one, or none, for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tarfile_: Any) -> tarfile.TarInfo:  # pyright: ignore[reportIncompatibleMethodOverride]
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.EOFHeaderError:  # pyright: ignore[reportAttributeAccessIssue]  # the archive's own end
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(
                f"no header of a file, nor the end of the archive, follows ({error})"
            ) from None


def _opened(shard: str) -> IO[bytes]:
    """The archive's bytes, decompressed. `tarfile` would do that itself, and not compare the checksum."""
    with open(shard, "rb") as file:
        begin = file.read(6)
    openers = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
    opener = next((found for magic, found in openers.items() if begin.startswith(magic)), open)
    return opener(shard, "rb")


def _files(shard: str) -> Iterator[tuple[str, str, bytes]]:
    """(key, field, bytes) of every file in an archive, in its order."""
    last = "its beginning"
    try:
        with _opened(shard) as raw, tarfile.open(fileobj=raw, mode="r|", tarinfo=_Member) as tar:
            for member in tar:
                if not member.isreg():
                    continue
                if member.issparse():  # a few bytes may stand for any number
                    raise DataError(
                        f"{shard}: {member.name} is a sparse file; write the archive without --sparse"
                    )
                file = tar.extractfile(member)
                assert file is not None  # it is a regular file
                data = file.read()
                if len(data) != member.size:
                    raise DataError(
                        f"{shard}: {member.name} ends after {len(data)} of {member.size} bytes: the archive is cut off"
                    )
                last = f"the file {member.name}"
                folder, _, name = member.name.rpartition("/")
                stem, _, field = name.partition(".")
                yield f"{folder}/{stem}" if folder else stem, field, data
            while raw.read(_PIECE):  # what is compressed ends with its checksum
                pass
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(f"{shard}: the archive is damaged after {last}: {error}") from error
