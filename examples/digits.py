"""Train a small CNN to read handwritten digits: scikit-learn's bundled images, no download.

    ddprun -n 2 examples/digits.py             # two ranks on this machine
    mpirun -n 2 python examples/digits.py      # the same, started by MPI
    python examples/digits.py                  # one rank

The network and the loop are in vision.py.
"""

import vision

import ddpgrad as torch
from ddpgrad.utils.data import TensorDataset


def load() -> vision.Split:
    """1,797 images of 8x8 pixels; every fourth is for testing, so all writers are in both parts."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit(
            'scikit-learn, which brings the images, is not installed: pip install "ddpgrad[examples]"'
        ) from None
    pixels, labels = load_digits(return_X_y=True)
    x = torch.tensor(pixels.reshape(-1, 1, 8, 8) / 8 - 1, dtype=torch.float32)  # 0..16 to -1..1
    y = torch.tensor(labels, dtype=torch.int64)
    tested = torch.arange(len(y)) % 4 == 0
    return TensorDataset(x[~tested], y[~tested]), TensorDataset(x[tested], y[tested])


if __name__ == "__main__":
    vision.train(vision.options(__doc__, epochs=8, batch=32).parse_args(), load)
