"""Train a CNN on MNIST: 70,000 handwritten digits, downloaded once (11 MB).

    ddprun -n 2 examples/mnist.py                    # two ranks on this machine
    ddprun -n 2 examples/mnist.py --data FOLDER      # with the four files that you have
    python examples/mnist.py --epochs 1              # one rank

The network and the loop are in vision.py.
"""

from pathlib import Path

import vision

from ddpgrad import datasets
from ddpgrad.utils.data import TensorDataset


def read(root: Path, train: bool, download: bool) -> TensorDataset:
    """The images, with mean 0 and deviation 1, and their labels; one rank of a host downloads, the others wait."""
    digits = datasets.MNIST(root, train, download=download)
    return TensorDataset((digits.data.float().unsqueeze(1) / 255 - 0.1307) / 0.3081, digits.targets)


def main() -> None:
    p = vision.options(__doc__, epochs=3, batch=128)
    p.add_argument(
        "--data", type=Path, help="folder with MNIST's four files, .gz or not (default: download them)"
    )
    args = p.parse_args()
    root, download = args.data or Path("runs/data"), args.data is None
    vision.train(args, lambda: (read(root, True, download), read(root, False, download)))


if __name__ == "__main__":
    main()
