"""Published datasets: read, downloaded or refused, in small files that the tests write."""

import gzip
import hashlib
import io
import struct
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest

from ddpgrad import datasets
from ddpgrad.datasets.download import fetch
from ddpgrad.errors import DataError
from ddpgrad.transforms import ToTensor
from ddpgrad.utils.data import DataLoader


def write_idx(folder: Path, part: str, images: np.ndarray, labels: np.ndarray, pack=gzip.compress) -> None:
    ending = ".gz" if pack is gzip.compress else ""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
        header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        (folder / f"{part}-{kind}-ubyte{ending}").write_bytes(pack(header + array.tobytes()))


IMAGES = np.arange(3 * 28 * 28, dtype=np.uint8).reshape(3, 28, 28)


@pytest.mark.parametrize("kind", ["MNIST", "FashionMNIST"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("place", ["raw", "."])
def test_mnist_files_are_read(tmp_path, kind, pack, place):
    labels = np.array([9, 0, 4], np.uint8)
    write_idx(tmp_path / kind / "raw" if place == "raw" else tmp_path, "t10k", IMAGES, labels, pack)
    pytest.importorskip("PIL")
    digits = getattr(datasets, kind)(str(tmp_path), train=False, transform=ToTensor(), target_transform=str)
    assert len(digits) == 3 and digits.targets.tolist() == [9, 0, 4]
    image, label = digits[1]
    assert label == "0"
    np.testing.assert_array_equal(image.numpy(), IMAGES[1:2].astype(np.float32) / np.float32(255))
    images, _ = next(iter(DataLoader(digits, 3)))
    assert images.shape == (3, 1, 28, 28)
    assert list(digits.class_to_idx.values()) == list(range(10))
    with pytest.raises(RuntimeError, match=r"Dataset not found.*download=True.*train-images-idx3"):
        getattr(datasets, kind)(tmp_path)


def test_mnist_files_that_do_not_fit_together_are_refused_by_name(tmp_path):
    labels = np.arange(9, 12, dtype=np.uint8)
    write_idx(tmp_path, "train", IMAGES, labels[:2])
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte.gz: 2 labels for the 3 images"):
        datasets.MNIST(tmp_path)
    write_idx(tmp_path, "train", IMAGES, labels)
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte.gz: a label is 11"):
        datasets.MNIST(tmp_path)


def records(labels: list[list[int]]) -> bytes:
    """CIFAR records whose pixels are 0, 1, 2 … (and so differ by plane, row and column)."""
    pixels = (np.arange(3072) % 251).astype(np.uint8).tobytes()
    return b"".join(bytes(label) + pixels for label in labels)


CIFAR = {
    "CIFAR10": (
        "cifar-10-batches-bin",
        {f"data_batch_{i}.bin": records([[i], [0]]) for i in range(1, 6)},
        {"test_batch.bin": records([[3]]), "batches.meta.txt": "\n".join("abcdefghij").encode() + b"\n\n"},
        [1, 0, 2, 0, 3, 0, 4, 0, 5, 0],
    ),
    "CIFAR100": (
        "cifar-100-binary",
        {"train.bin": records([[7, 2], [1, 0]])},
        {"test.bin": records([[3, 3]]), "fine_label_names.txt": b"apple\nbear\ncup\nrose\n"},
        [2, 0],
    ),
}


def pack_tar(folder: str, files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize("kind", CIFAR)
@pytest.mark.parametrize("packed", [False, True])
def test_cifar_files_are_read(tmp_path, kind, packed):
    folder, train, test, labels = CIFAR[kind]
    files = {**train, **test}
    if packed:
        (tmp_path / getattr(datasets, kind).archive).write_bytes(pack_tar(folder, files))
    else:
        (tmp_path / folder).mkdir()
        for name, content in files.items():
            (tmp_path / folder / name).write_bytes(content)
    images = getattr(datasets, kind)(tmp_path)
    assert images.targets == labels and images.data.shape == (len(labels), 32, 32, 3)
    assert images.data[0, 2, 5].tolist() == [(plane * 1024 + 2 * 32 + 5) % 251 for plane in range(3)]
    tested = getattr(datasets, kind)(tmp_path, train=False)
    assert len(tested) == 1 and tested.targets == [3]
    pytest.importorskip("PIL")
    picture, label = images[0]
    assert (picture.size, picture.mode, label) == ((32, 32), "RGB", labels[0])


def test_damaged_cifar_files_are_refused_by_name(tmp_path):
    folder, train, test, _ = CIFAR["CIFAR10"]
    archive = tmp_path / "cifar-10-binary.tar.gz"
    whole = pack_tar(folder, {**train, **test})
    for content, reason in (
        (whole[: len(whole) // 2], "the archive is damaged"),
        (b"<html>", "the archive is damaged"),
        (pack_tar(folder, train), r"batches.meta.txt is not in the archive"),
        (pack_tar(folder, {**train, **test, "data_batch_2.bin": b"12"}), "data_batch_2.bin has 2 bytes"),
        (pack_tar(folder, {**train, **test, "data_batch_2.bin": records([[10]])}), "is 10, of 10 classes"),
    ):
        archive.write_bytes(content)
        with pytest.raises(DataError, match=reason):
            datasets.CIFAR10(tmp_path)
    archive.unlink()
    with pytest.raises(RuntimeError, match=r"Dataset not found.*or cifar-10-binary.tar.gz"):
        datasets.CIFAR10(tmp_path)


def mirrors(folder: Path, name: str, contents: dict[str, bytes | None]) -> list[str]:
    for mirror, content in contents.items():
        (folder / mirror).mkdir()
        if content is not None:
            (folder / mirror / name).write_bytes(content)
    return [f"{(folder / mirror).as_uri()}/" for mirror in contents]


def test_a_download_tries_the_mirrors_and_appears_whole(tmp_path):
    name, data = "labels.gz", b"all of the labels"
    checksum = f"md5:{hashlib.md5(data).hexdigest()}"
    sources = mirrors(tmp_path, name, {"gone": None, "cut": data[:-1], "long": data + b"!", "good": data})
    folder = tmp_path / "new" / "raw"

    with pytest.raises(OSError, match=r"could not be downloaded") as caught:
        fetch(folder, name, checksum, sources[:3], largest=100)
    message = str(caught.value)
    assert f"{sources[0]}: " in message and f"{sources[1]}: sent 16 bytes with md5:" in message
    assert str(folder) in message and not list(folder.glob("labels*"))

    assert fetch(folder, name, checksum, sources, largest=100).read_bytes() == data
    assert sorted(path.name for path in folder.iterdir()) == [".lock", name]


def test_only_what_is_missing_is_downloaded(tmp_path, monkeypatch):
    write_idx(tmp_path, "t10k", IMAGES, np.zeros(3, np.uint8), bytes)
    fetched = []

    def fetch(folder, name, *rest):
        fetched.append(name)

    monkeypatch.setattr("ddpgrad.datasets.mnist.fetch", fetch)
    assert len(datasets.MNIST(tmp_path, train=False, download=True)) == 3
    assert fetched == ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]


def test_several_downloads_at_once_fetch_once(tmp_path, monkeypatch):
    data, calls = b"content", []
    (source,) = mirrors(tmp_path, "file", {"good": data})
    import ddpgrad.datasets.download as module

    real = module._fetch
    monkeypatch.setattr(module, "_fetch", lambda *args: (calls.append(args), real(*args))[1])
    checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
    threads = [
        threading.Thread(target=fetch, args=(tmp_path / "to", "file", checksum, [source], 100))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1 and (tmp_path / "to" / "file").read_bytes() == data
