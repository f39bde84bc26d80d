"""`torch.quasirandom`: points that fill a cube evenly. SciPy has the numbers that tell the dimensions apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import Tensor, get_default_dtype, randint, tensor
from ..random.generator import Generator


class SobolEngine:
    """Sobol's sequence in [0, 1)^dimension, point by point, with PyTorch's numbers.

    scramble: shuffle it at random, by a matrix and a shift of the bits of each dimension, from `seed` or the
    default generator.
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}], but got {dimension}"
            )
        try:
            from scipy.stats import qmc
        except ImportError as error:
            raise ImportError("SobolEngine needs SciPy: pip install scipy") from error
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.num_generated = 0
        self._directions = np.array(qmc.Sobol(dimension, scramble=False, bits=self.MAXBIT)._sv, np.int64)
        self._shift = np.zeros(dimension, np.int64)
        if scramble:
            self._scramble()

    def _scramble(self) -> None:
        bits = self.MAXBIT
        generator = None if self.seed is None else Generator().manual_seed(self.seed)
        drawn = randint(2, (self.dimension, bits), generator=generator).numpy()
        self._shift = drawn @ (1 << np.arange(bits))
        lower = np.tril(randint(2, (self.dimension, bits, bits), generator=generator).numpy())
        lower[:, range(bits), range(bits)] = 1
        # The bits of each direction, the highest first, times the matrix, modulo 2.
        high = np.arange(bits)[::-1]
        before = (self._directions[:, None, :] >> high[:, None]) & 1
        self._directions = ((lower @ before % 2) << high[:, None]).sum(1)

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next `n` points, as rows."""
        places = np.arange(self.num_generated, self.num_generated + n)
        gray = places ^ (places >> 1)
        points = np.repeat(self._shift[None], n, 0)
        for bit in range(int(gray.max(initial=0)).bit_length()):
            points ^= ((gray >> bit) & 1)[:, None] * self._directions[:, bit]
        self.num_generated += n
        made = tensor(points).to(get_default_dtype() if dtype is None else dtype) * 2.0**-self.MAXBIT
        return made if out is None else out.resize_as_(made).copy_(made)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next 2**m points, of which there must then be a power of 2 in all, for the sake of their balance."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: n={self.num_generated}+2**{m}={total}. "
                "If you still want to do this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(2**m, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Begin anew, with the same points."""
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Pass over `n` points."""
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        said = [f"dimension={self.dimension}", *(["scramble=True"] if self.scramble else [])]
        said += [] if self.seed is None else [f"seed={self.seed}"]
        return f"SobolEngine({', '.join(said)})"


__all__ = ["SobolEngine"]
