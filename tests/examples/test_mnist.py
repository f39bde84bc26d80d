"""MNIST: found, downloaded or refused, and trained on in small files that the tests write."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import idx
import mnist
import numpy as np
import pytest

import ddpgrad.distributed as dist


def write(folder: Path, part: str, images: np.ndarray, labels: np.ndarray, pack=gzip.compress) -> None:
    ending = ".gz" if pack is gzip.compress else ""
    header = struct.pack(">BBBBIII", 0, 0, 8, 3, *images.shape)
    (folder / f"{part}-images-idx3-ubyte{ending}").write_bytes(pack(header + images.tobytes()))
    header = struct.pack(">BBBBI", 0, 0, 8, 1, len(labels))
    (folder / f"{part}-labels-idx1-ubyte{ending}").write_bytes(pack(header + labels.tobytes()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """40 and 10 images, a bright row at the height that the label says; test files without compression."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part, count, pack in (("train", 40, gzip.compress), ("t10k", 10, bytes)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = np.zeros((count, 28, 28), np.uint8)
        images[np.arange(count), labels * 2 + 4] = 255
        write(folder, part, images, labels, pack)
    return folder


def test_a_folder_of_files_is_read_and_normalised(folder):
    training, test = mnist.load(folder, given=True)
    assert (len(training), len(test)) == (40, 10)
    image, label = training[13]
    assert label.item() == 3 and image.shape == (1, 28, 28)
    bright = image[0, 10].numpy()
    np.testing.assert_allclose(bright, (1 - 0.1307) / 0.3081, rtol=1e-6)
    np.testing.assert_allclose(image[0, 11].numpy(), -0.1307 / 0.3081, rtol=1e-6)


def test_files_that_do_not_fit_together_are_refused_by_name(folder):
    images, labels = np.zeros((3, 28, 28), np.uint8), np.arange(9, 12, dtype=np.uint8)
    write(folder, "train", images, labels[:2])
    with pytest.raises(idx.CorruptError, match=r"train-labels-idx1-ubyte.gz: 2 labels for the 3 images"):
        mnist.load(folder, given=True)
    write(folder, "train", images, labels)
    with pytest.raises(idx.CorruptError, match=r"train-labels-idx1-ubyte.gz: a label is 11"):
        mnist.load(folder, given=True)
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"are missing: t10k-labels-idx1-ubyte.gz$"):
        mnist.load(folder, given=True)


def test_a_download_tries_the_mirrors_and_appears_whole(tmp_path):
    name, data = "t10k-labels-idx1-ubyte.gz", b"all of the labels"
    sha256 = hashlib.sha256(data).hexdigest()
    mirrors = []
    for mirror, content in (("gone", None), ("cut", data[:-1]), ("good", data)):
        (tmp_path / mirror).mkdir()
        mirrors.append(f"{(tmp_path / mirror).as_uri()}/")
        if content is not None:
            (tmp_path / mirror / name).write_bytes(content)
    folder = tmp_path / "new" / "mnist"

    with pytest.raises(OSError, match=r"could not be downloaded") as caught:
        mnist.download(folder, name, sha256, mirrors[:2])
    message = str(caught.value)
    assert f"{mirrors[0]}: " in message and f"{mirrors[1]}: sent 16 bytes of SHA-256" in message
    assert "--data" in message and not folder.exists()

    assert mnist.download(folder, name, sha256, mirrors).read_bytes() == data
    assert [path.name for path in folder.iterdir()] == [name]


def test_only_what_is_missing_is_downloaded_and_by_one_rank(folder, monkeypatch, capsys):
    fetched = []
    monkeypatch.setattr(mnist, "download", lambda folder, name, sha256: fetched.append(name))
    (folder / "t10k-labels-idx1-ubyte").unlink()

    def program():
        dist.init_process_group()
        try:
            mnist.fetch(folder)
        finally:
            dist.destroy_process_group()

    dist.simulate(program, 3)
    assert fetched == ["t10k-labels-idx1-ubyte.gz"]
    assert "downloading t10k-labels-idx1-ubyte.gz" in capsys.readouterr().out


def test_two_ranks_train_on_a_folder(folder, run):
    done = run(2, "mnist.py", "--data", str(folder), "--epochs", "2", "--batch", "20", "--width", "4")
    assert done.returncode == 0, done.stderr
    assert "epoch  2/2" in done.stdout and "on 2 ranks by shm, replicas bit-identical" in done.stdout
