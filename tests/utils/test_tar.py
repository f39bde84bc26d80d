"""Tar archives of samples: dealt to ranks and workers, and refused when they are damaged."""

import gzip
import io
import itertools
import tarfile
from pathlib import Path

import pytest

from ddpgrad.errors import DataError
from ddpgrad.utils.data import DataLoader
from ddpgrad.utils.data.tar import TarDataset


def write(path: Path, files: list[tuple[str, bytes]], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        folder = tarfile.TarInfo("images")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Six archives of two samples each, numbered."""
    return [
        write(
            tmp_path / f"{i}.tar{'.gz' if i % 2 else ''}",
            [(f"images/{n}.{field}", content) for n in (2 * i, 2 * i + 1)
             for field, content in (("seg.png", b"%d" % n), ("cls", b"%d" % n))],
            "w:gz" if i % 2 else "w",
        )
        for i in range(6)
    ]  # fmt: skip


def test_files_of_one_name_are_a_sample(shards):
    samples = list(TarDataset(shards[:2], decode={"cls": int}))
    assert [sample["cls"] for sample in samples] == [0, 1, 2, 3]
    assert samples[3] == {"__key__": "images/3", "__url__": str(shards[1]), "seg.png": b"3", "cls": 3}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_and_workers_share_the_archives(shards, ranks, workers):
    read = []
    for rank in range(ranks):
        dataset = TarDataset(shards, rank, ranks, decode={"cls": int}, shuffle=True)
        read.append([sample["cls"] for sample in DataLoader(dataset, None, num_workers=workers)])
    assert sorted(itertools.chain(*read)) == list(range(12))
    assert len({len(part) for part in read}) == 1


def test_archives_come_in_another_order_in_every_epoch(shards):
    dataset = TarDataset(shards, decode={"cls": int}, shuffle=True)
    orders = []
    for epoch in (0, 1, 0):
        dataset.set_epoch(epoch)
        orders.append([sample["cls"] for sample in dataset])
    assert orders[0] == orders[2] != orders[1]
    with pytest.raises(ValueError, match=r"2 archives for 3 ranks.*at least 3"):
        list(TarDataset(shards[:2], 0, 3))


def test_damaged_archives_are_refused_by_name(shards, tmp_path):
    content = shards[0].read_bytes()
    header = 5 * 512  # of the second sample's first file: after a folder and two files of two blocks each
    for damaged, reason in (
        (content[: header + 512], r"0.tar: the archive is damaged after the file images/0.cls"),
        (content[: header + 100], r"damaged after the file images/0.cls"),
        (content[:header], r"damaged after the file images/0.cls.*nor the end of the archive"),
        (
            content[: header + 148] + b"0000000\0" + content[header + 156 :],
            r"damaged after the file images/0.cls",
        ),
        (b"", "damaged after its beginning"),
        (b"no archive at all" * 100, "damaged after its beginning"),
        (shards[1].read_bytes()[:-30], "damaged after"),
    ):
        shards[0].write_bytes(damaged)
        with pytest.raises(DataError, match=reason):
            list(TarDataset(shards[:1]))
    stored = tmp_path / "stored.tar.gz"
    archive = write(tmp_path / "plain.tar", [("a.cls", b"sound"), ("b.cls", b"1")]).read_bytes()
    stored.write_bytes(gzip.compress(archive, 0).replace(b"sound", b"found"))
    with pytest.raises(DataError, match=r"stored.tar.gz.*CRC"):
        list(TarDataset([stored]))
    sparse = tarfile.TarInfo("a.cls")
    sparse.type = tarfile.GNUTYPE_SPARSE
    (tmp_path / "sparse.tar").write_bytes(sparse.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(DataError, match=r"a.cls is a sparse file"):
        list(TarDataset([tmp_path / "sparse.tar"]))
    twice = write(tmp_path / "twice.tar", [("a.cls", b"1"), ("a.cls", b"2")])
    with pytest.raises(DataError, match=r"twice.tar: the sample 'a' has two files for the field 'cls'"):
        list(TarDataset([twice]))
    with pytest.raises(ValueError, match="invalid literal") as caught:
        list(TarDataset([write(tmp_path / "text.tar", [("a.cls", b"x")])], decode={"cls": int}))
    assert "text.tar: decoding the field 'cls' of the sample 'a'" in caught.value.__notes__[0]
    with pytest.raises(FileNotFoundError):
        list(TarDataset([tmp_path / "none.tar"]))
