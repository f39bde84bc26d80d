"""The MNIST example, on small files that the tests write."""

import gzip
import struct
from pathlib import Path

import mnist
import numpy as np
import pytest


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
    training, test = (mnist.read(folder, train, download=False) for train in (True, False))
    assert (len(training), len(test)) == (40, 10)
    image, label = training[13]
    assert label.item() == 3 and image.shape == (1, 28, 28)
    bright = image[0, 10].numpy()
    np.testing.assert_allclose(bright, (1 - 0.1307) / 0.3081, rtol=1e-5)
    np.testing.assert_allclose(image[0, 11].numpy(), -0.1307 / 0.3081, rtol=1e-6)


def test_two_ranks_train_on_a_folder(folder, run):
    done = run(2, "mnist.py", "--data", str(folder), "--epochs", "2", "--batch", "20", "--width", "4")
    assert done.returncode == 0, done.stderr
    assert "epoch  2/2" in done.stdout and "on 2 ranks by shm, replicas bit-identical" in done.stdout
