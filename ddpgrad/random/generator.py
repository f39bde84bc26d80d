"""Generator: a stream of random numbers on the host, equal to PyTorch's CPU generator.

The same seed gives the same uniform, normal, integer and permutation draws as PyTorch
does on a CPU (Mersenne Twister, https://doi.org/10.1145/272991.272995), and `get_state`
gives PyTorch's own 5056 bytes, so that a stream can be carried from one to the other.
They are equal to the bit, normal ones as on processors with AVX2 or AVX-512 (`backend/normals.py`), except that a
float64 `uniform` with other bounds than 0 and 1 may differ in its last bit.

Every rank has a default generator of its own (`rank_generator`). Kernels that make
their own numbers on a device, such as dropout, take a key from `Generator.raw64`.
"""

from __future__ import annotations

import math
import secrets
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from ..backend import device as devices
from ..backend import dtype as dtypes
from ..backend.normals import BLOCK, box_muller, normal_pair, one_by_one, scaled
from ..core.environment import numba_enabled
from ..core.modes import mode
from ..core.taping import taped
from ..core.upcalls import new_tensor
from .variates import Shape, Variates, check_deviation, check_range, floating, folded, shape_tuple, span_of

if TYPE_CHECKING:
    from ..core.tensor import Tensor

_DEFAULT_SEED = 67280421310721  # what PyTorch's generators start from when nobody seeds them
_STATE_WORDS = 624  # words of a Mersenne Twister's state
_WIDE = 1 << 28  # PyTorch draws 64 bits for integer ranges from here on
_MANY = 1 << 15  # draws for which compiled code is worth loading
_FEW_CALLS = 100  # the same of shorter ones, where a compiler is loaded
_SHORT = 1 << 14  # permutations up to this length are swapped element by element

# The bytes of PyTorch's CPU generator state. `left` counts the words before the next
# refill, one too many; `normal_*` is the second half of a scalar Box-Muller pair.
_STATE = np.dtype(
    {
        "names": ["seed", "left", "seeded", "next", "words", "normal", "normal_valid"],
        "formats": ["<u8", "<i4", "<i4", "<u8", ("<u8", _STATE_WORDS), "<f8", "<i4"],
        "offsets": [0, 8, 12, 16, 24, 5024, 5040],
        "itemsize": 5056,
    }
)


class _Unseeded(ISeedSequence):
    """What NumPy asks for a state that is overwritten at once; its own answer takes fifty times as long as the rest."""

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        return np.zeros(n_words, dtype)


_UNSEEDED: Any = _Unseeded()


class Generator(Variates):
    """A stream of random numbers, always drawn on the host.

    device: recorded for PyTorch's sake; arrays come out as NumPy arrays.
    """

    __slots__ = ("_seed", "_spare", "_twister", "device")

    def __init__(self, device: Any = "cpu") -> None:
        self.device = devices.of(device)
        self._twister = np.random.MT19937(_UNSEEDED)
        self._seed = 0
        self._spare: float | None = None  # second normal of the last scalar pair
        self.manual_seed(_DEFAULT_SEED)

    def __repr__(self) -> str:
        return f"Generator(device='{self.device}', seed={self._seed})"

    # -- seeds and state ---------------------------------------------------------------

    @taped
    def manual_seed(self, seed: int) -> Generator:
        """Restart the stream from `seed`, in [-2^63, 2^64); only its low 32 bits matter, as in PyTorch."""
        seed = int(seed)
        if not -(1 << 63) <= seed < 1 << 64:
            raise RuntimeError(
                f"Overflow when unpacking long long: a seed lies in [-2**63, 2**64), got {seed}"
            )
        self._seed = seed % (1 << 64)
        # RandomState is NumPy's public way to the twister's original one-word seeding.
        np.random.RandomState(self._twister).seed(self._seed & 0xFFFFFFFF)
        self._spare = None
        return self

    @taped
    def seed(self) -> int:
        """Restart the stream from a seed that the operating system draws, and return that seed."""
        seed = secrets.randbits(64)
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed that the stream was last restarted from."""
        return self._seed

    @taped
    def get_state(self) -> Tensor:
        """The whole state as a uint8 tensor of 5056 bytes, in PyTorch's layout."""

        twister: Any = self._twister.state
        position = int(twister["state"]["pos"])
        state = np.zeros((), dtype=_STATE)
        state["seed"] = self._seed
        state["left"] = _STATE_WORDS + 1 - position
        state["seeded"] = 1
        state["next"] = position % _STATE_WORDS
        state["words"] = twister["state"]["key"]
        state["normal"] = 0.0 if self._spare is None else self._spare
        state["normal_valid"] = self._spare is not None
        return new_tensor(np.frombuffer(state.tobytes(), dtype=np.uint8).copy())

    @taped
    def set_state(self, state: Tensor | np.ndarray) -> Generator:
        """Continue from a state that `get_state`, here or in PyTorch, gave."""
        if not hasattr(state, "dtype"):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(state).__name__}")
        array = state if isinstance(state, np.ndarray) else state.numpy()
        if array.dtype != np.uint8:
            raise TypeError(f"RNG state must be a torch.ByteTensor, got {array.dtype}")
        if array.size != _STATE.itemsize:
            raise RuntimeError(
                f"Expected a CPUGeneratorImplState of size {_STATE.itemsize} but found the input RNG state size to be "
                f"{array.size}"
            )
        fields = np.frombuffer(array.tobytes(), dtype=_STATE)[0]
        left = int(fields["left"])
        if fields["seeded"] != 1 or not 1 <= left <= _STATE_WORDS:
            raise RuntimeError("this is not a generator state: its bytes are inconsistent")
        self._seed = int(fields["seed"])
        self._twister.state = {
            "bit_generator": "MT19937",
            "state": {"key": fields["words"].astype(np.uint32), "pos": _STATE_WORDS + 1 - left},
        }
        self._spare = float(fields["normal"]) if fields["normal_valid"] else None
        return self

    def clone_state(self) -> Generator:
        """Another generator that continues from the same state."""
        return Generator(self.device).set_state(self.get_state())

    # -- raw draws ---------------------------------------------------------------------

    def _fill(self, how: str, out: np.ndarray, *more: Any, draws: int = 1) -> bool:
        """Let the compiled twister fill `out`, with so many draws for each element, where that is done sooner.

        All draws start here, and are told to the transforms that the thread is in.
        """
        for level in mode.levels:
            level.draw(self)
        fill = _compiled(how, draws * out.size)
        if fill is None:
            return False
        with self._twister.lock:  # as NumPy's own draws: another thread must not draw the same
            fill(self._twister.ctypes.state_address, *more, out)
        return True

    def _words32(self, count: int) -> np.ndarray:
        """`count` draws of 32 bits, as uint64."""
        words = np.empty(count, np.uint64)
        return words if self._fill("words", words) else self._twister.random_raw(count)

    def _words64(self, count: int) -> np.ndarray:
        """`count` draws of 64 bits, each from two of 32, the high half first."""
        pairs = self._words32(2 * count)
        words = pairs[0::2] << np.uint64(32)
        words |= pairs[1::2]
        return words

    @taped
    def raw64(self) -> int:
        """One draw of 64 bits: the key of a counter-based kernel."""
        return int(self._words64(1)[0])

    def _unit(self, count: int, dtype: np.dtype[Any]) -> np.ndarray:
        """`count` numbers in [0, 1): 53 bits each in float64, 24 bits in every other type."""
        if dtype == np.float64:
            return (self._words64(count) & np.uint64((1 << 53) - 1)) * 2.0**-53
        numbers = np.empty(count, np.float32)
        if self._fill("unit", numbers):
            return numbers
        bits = (self._words32(count) & np.uint64((1 << 24) - 1)).astype(np.float32)
        bits *= np.float32(2.0**-24)
        return bits

    # -- distributions -----------------------------------------------------------------

    @taped
    def uniform(
        self, shape: Shape, dtype: Any = np.float32, low: float = 0.0, high: float = 1.0
    ) -> np.ndarray:
        """An array of `shape` with numbers in [low, high); a draw that rounds to `high` becomes `low`."""
        kind = floating(dtype)
        check_range(low, high, kind)
        unit = self._unit(math.prod(shape_tuple(shape)), kind)
        if (low, high) == (0.0, 1.0):
            values = unit.astype(kind, copy=False)
        elif kind == np.float64:
            values = unit * (high - low) + low
        else:
            # PyTorch's compiled loop fuses the product and the sum; float64 holds the product exactly.
            width = np.float32(high) - np.float32(low)
            fused = unit.astype(np.float64) * np.float64(width) + np.float64(np.float32(low))
            values = fused.astype(np.float32).astype(kind, copy=False)
        if (low, high) != (0.0, 1.0) or kind.itemsize == 2:
            values[values == kind.type(high)] = kind.type(low)
        return values.reshape(shape_tuple(shape))

    @taped
    def normal(
        self,
        shape: Shape,
        dtype: Any = np.float32,
        mean: float = 0.0,
        std: float = 1.0,
        in_blocks: bool = True,
    ) -> np.ndarray:
        """An array of `shape` from the normal distribution (Box-Muller, as PyTorch pairs it).

        in_blocks: PyTorch draws 16 numbers at a time for contiguous memory, and single ones for other.
        """
        kind = floating(dtype)
        check_deviation(std)
        shape = shape_tuple(shape)
        count = math.prod(shape)
        if count < BLOCK or not in_blocks:
            values = [scaled(value, std, mean) for value in self._single_normals(count)]
            return np.array(values, dtype=np.float64).astype(kind).reshape(shape)
        if kind == np.float32:
            values = np.empty(shape, kind)
            if self._fill("normal", values.reshape(-1), np.float32(mean), np.float32(std)):
                return values
        whole, rest = divmod(count, BLOCK)
        # PyTorch fills the array with uniform draws, transforms its whole blocks, and draws the last
        # 16 elements again when some are left over. For two-byte types it never draws the left-over.
        drawn = self._unit(whole * BLOCK if kind.itemsize == 2 else count, kind)
        values = np.empty(count, dtype=drawn.dtype)
        box_muller(drawn[: whole * BLOCK], values[: whole * BLOCK], mean, std)
        if rest:
            box_muller(self._unit(BLOCK, kind), values[count - BLOCK :], mean, std)
        return values.astype(kind, copy=False).reshape(shape)

    def _one(self) -> float:
        """A float64 number in [0, 1), without an array around it: what draws by rejection take by the million."""
        for level in mode.levels:
            level.draw(self)
        draw = self._twister.random_raw
        return ((draw() << 32 | draw()) & ((1 << 53) - 1)) * 2.0**-53

    def _scalar_normal(self) -> float:
        """`_single_normals(1)`, as a number."""
        value = self._spare
        if value is not None:
            self._spare = None
            return value
        value, self._spare = normal_pair(self._one(), self._one())
        return value

    def _single_normals(self, count: int) -> list[float]:
        """`count` normal numbers, each pair of two uniform ones; half a pair waits for the next draw."""
        values = [] if self._spare is None or not count else [self._spare]
        missing = count - len(values)
        pairs = np.empty(missing + missing % 2)
        one_by_one(self._unit(pairs.size, pairs.dtype), pairs)
        values += pairs.tolist()
        if count:
            self._spare = values.pop() if missing % 2 else None
        return values

    @taped
    def integers(self, low: int, high: int, shape: Shape, dtype: Any = np.int64) -> np.ndarray:
        """An array of `shape` with integers in [low, high)."""
        span, count = span_of(low, high), math.prod(shape_tuple(shape))
        words = self._words64(count) if span >= _WIDE else self._words32(count)
        return folded(words, low, span).astype(dtypes.numpy_of(dtype), copy=False).reshape(shape_tuple(shape))

    @taped
    def permutation(self, n: int) -> np.ndarray:
        """The integers 0 to n-1 in random order, int64 of shape (n,)."""
        if n < 0:
            raise RuntimeError(f"permutation needs n >= 0, got {n}")
        if n < 2:
            return np.arange(n)
        draws = self._words32(n - 1) if n < 0xFFFFFFFF // 20 else self._words64(n - 1)
        if (swap_in_turn := _compiled("swap_in_turn", n)) is not None:
            order = np.arange(n)
            swap_in_turn(draws, order)
            return order
        partners = draws % np.arange(n, 1, -1, dtype=np.uint64)
        return _swap_in_turn(n, partners.view(np.int64) + np.arange(n - 1))


class _Compiled:
    """calls: without the compiled twister. module: it, once it was worth loading."""

    calls: int = 0
    module: Any = None


def _compiled(how: str, draws: int) -> Any:
    """A function of the compiled twister, where that is worth loading for so many draws, or compiling; else None."""
    if _Compiled.module is None:
        few = draws < _MANY and ("numba" not in sys.modules or _Compiled.calls < _FEW_CALLS)
        if few or not numba_enabled():
            _Compiled.calls += 1
            return None
        from ..backend.cpu import twister

        _Compiled.module = twister
    return _Compiled.module.if_worth_it(how, draws)


def _swap_in_turn(n: int, partners: np.ndarray) -> np.ndarray:
    """arange(n) after swapping elements i and partners[i] >= i, for i = 0, 1, 2 …

    Swaps that touch no element twice can be done at once. Runs of about the square root
    of what is left rarely touch one twice; those that do, and the tail, go one by one.
    """
    order = np.arange(n)
    start = 0
    while start < n - _SHORT:
        stop = start + math.isqrt(n - start) // 4
        run = partners[start:stop]
        ahead = np.sort(run)
        if ahead[0] >= stop and (ahead[1:] > ahead[:-1]).all():
            order[start:stop], order[run] = order[run], order[start:stop].copy()
        else:
            _swap_one_by_one(order, start, run)
        start = stop
    tail = order[start:].tolist()  # plain lists swap faster than arrays
    for i, j in enumerate((partners[start:] - start).tolist()):
        tail[i], tail[j] = tail[j], tail[i]
    order[start:] = tail
    return order


def _swap_one_by_one(order: np.ndarray, start: int, partners: np.ndarray) -> None:
    for i, j in enumerate(partners.tolist(), start):
        order[i], order[j] = order[j], order[i]
