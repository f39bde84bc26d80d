"""Train a CNN on MNIST: 70,000 handwritten digits, downloaded once (11 MB).

    ddprun -n 2 examples/mnist.py                    # two ranks on this machine
    ddprun -n 2 examples/mnist.py --data FOLDER      # with the four files that you have
    python examples/mnist.py --epochs 1              # one rank

The network and the loop are in vision.py.
"""

from __future__ import annotations

import hashlib
import os
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

import idx
import vision

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.utils.data import TensorDataset

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)
SHA256 = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
_LARGEST = 16 << 20  # bytes that a mirror may send for one file


def find(folder: Path, name: str) -> Path | None:
    """The file `name` of MNIST in `folder`, compressed or not."""
    return next((p for p in (folder / name, folder / name.removesuffix(".gz")) if p.is_file()), None)


def download(folder: Path, name: str, sha256: str, mirrors: Sequence[str] = MIRRORS) -> Path:
    """Fetch one file from the first mirror that sends it whole; it appears in `folder` only then.

    OSError lists what went wrong with each mirror.
    """
    reasons = []
    for mirror in mirrors:
        try:
            with urllib.request.urlopen(mirror + name, timeout=30) as answer:
                data = answer.read(_LARGEST)
        except (OSError, HTTPException) as error:
            reasons.append(f"{mirror}: {error}")
            continue
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            reasons.append(f"{mirror}: sent {len(data)} bytes of SHA-256 {found}, expected {sha256}")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{name}.{os.getpid()}"
        try:
            hidden.write_bytes(data)
            return hidden.replace(folder / name)
        finally:
            hidden.unlink(missing_ok=True)
    raise OSError(
        f"MNIST's {name} could not be downloaded:\n  " + "\n  ".join(reasons) + "\n"
        "Fetch the four files by other means, and pass their folder with --data"
    )


def fetch(folder: Path) -> None:
    """See to it that all files are in `folder`; one rank of each host downloads what is missing."""
    if dist.get_local_rank() == 0:
        for name, sha256 in SHA256.items():
            if find(folder, name) is None:
                print(f"downloading {name} to {folder}", flush=True)
                download(folder, name, sha256)
    dist.barrier()


def read(folder: Path, part: str) -> TensorDataset:
    """The images, with mean 0 and deviation 1, and labels of `part`, 'train' or 't10k'."""
    paths = [folder / f"{part}-images-idx3-ubyte.gz", folder / f"{part}-labels-idx1-ubyte.gz"]
    images_path, labels_path = (find(folder, path.name) or path for path in paths)
    images = idx.read(images_path, (None, 28, 28))
    labels = idx.read(labels_path, (None,))
    if len(images) != len(labels):
        raise idx.CorruptError(
            f"{labels_path}: {len(labels)} labels for the {len(images)} images of {images_path}"
        )
    if len(labels) and labels.max() > 9:
        raise idx.CorruptError(f"{labels_path}: a label is {labels.max()}; labels are digits from 0 to 9")
    x = torch.tensor(images, dtype=torch.float32).unsqueeze(1) / 255
    return TensorDataset((x - 0.1307) / 0.3081, torch.tensor(labels, dtype=torch.int64))


def load(folder: Path, given: bool) -> vision.Split:
    """(training, test) from `folder`. Nothing is downloaded into a folder that the user has given."""
    missing = [name for name in SHA256 if find(folder, name) is None]
    if given and missing:
        raise FileNotFoundError(f"--data {folder}: these files are missing: {', '.join(missing)}")
    if not given:
        fetch(folder)
    return read(folder, "train"), read(folder, "t10k")


def main() -> None:
    p = vision.options(__doc__, epochs=3, batch=128)
    p.add_argument(
        "--data", type=Path, help="folder with MNIST's four files, .gz or not (default: download them)"
    )
    args = p.parse_args()
    folder = args.data or Path("runs/data/mnist")
    vision.train(args, lambda: load(folder, given=args.data is not None))


if __name__ == "__main__":
    main()
