"""Variates of other distributions from uniform and normal ones, by PyTorch's CPU algorithms."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend import dtype as dtypes
from ..core.errors import warn_program
from ..core.taping import taped

Shape = int | Sequence[int]

_THIRD = float(np.float32(1) / np.float32(3))  # of this precision in PyTorch, also for float64 draws
_DRAWS = 1 << 14  # draws at a time
_FEW = 10.0  # Poisson rates from here on are drawn by rejection

DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Binary digits of floating-point types, which hold all whole numbers up to 2**digits."""


def largest_whole(dtype: dtypes.DType) -> int:
    """The largest whole number that a real `dtype` holds together with all smaller ones."""
    if dtype.category < 2:
        return int(np.iinfo(dtype.numpy).max) if dtype.category else 1
    return 1 << DIGITS[dtype.name]


def check_range(low: float, high: float, kind: np.dtype[Any]) -> None:
    """Refuse bounds of uniform numbers that are not in order, or farther apart than `kind` can hold."""
    if not low <= high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    if not -1e4 <= low <= high <= 1e4 and max(-low, high, high - low) > dtypes.largest(dtypes.BY_NUMPY[kind]):
        raise RuntimeError(f"uniform needs bounds whose distance a {kind} can hold, got {low} and {high}")


def check_deviation(std: float) -> None:
    """Refuse a negative standard deviation of normal numbers."""
    if not std >= 0.0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")


def check_probability(p: float) -> None:
    """Refuse what is no probability."""
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"bernoulli needs a probability in [0, 1], got {p}")


def span_of(low: int, high: int) -> int:
    """How many integers there are in [low, high): from 1 to 2**64."""
    if not low < high:
        raise RuntimeError(f"integers needs low < high, got low={low} and high={high}")
    if high - low > 1 << 64:
        raise RuntimeError(f"integers spans at most 2**64 values, got {high - low}")
    return high - low


def folded(words: Any, low: int, span: int) -> Any:
    """Integers from `low` on, as int64, made in place of `words` of 64 bits."""
    if span == 1 << 64:
        return words.view(np.int64)
    words %= np.uint64(span)
    words += np.uint64(low % (1 << 64))  # wraps around for a negative `low`, which the cast undoes
    return words.view(np.int64)


def largest(scores: np.ndarray, count: int) -> np.ndarray:
    """The places of the `count` largest of (..., n), in their order and the first of equal ones first: int64 (..., count)."""
    if count == 1:
        return scores.argmax(-1, keepdims=True)
    n = scores.shape[-1]
    if n < 1024 or count > n >> 3 or not scores.size:
        return np.ascontiguousarray(np.argsort(-scores, axis=-1, kind="stable")[..., :count])
    least = np.partition(scores, n - count, axis=-1)[..., n - count]
    rows = []
    for row, bound in zip(scores.reshape(-1, n), least.reshape(-1), strict=True):
        places = np.flatnonzero(row >= bound)
        rows.append(places[np.argsort(-row[places], kind="stable")[:count]])
    return np.stack(rows).reshape(*scores.shape[:-1], count)


@functools.cache
def _limits(kind: dtypes.DType) -> tuple[int, int, int]:
    """The least and the largest number of a dtype, and the largest of those in a row that are whole."""
    if kind.is_floating_point:
        top = int(dtypes.finfo(kind).max)
        return -top, top, largest_whole(kind)
    if kind.category == 0:
        return 0, 1, 1
    info = np.iinfo(kind.numpy)
    return int(info.min), int(info.max), int(info.max)


def within(kind: dtypes.DType, low: int, high: int) -> tuple[int, int]:
    """Bounds of integers in [low, high) as `kind` holds them; `RuntimeError` for what is beyond all that it holds.

    Floating-point types do not hold all integers beyond 2**digits, of which a warning tells: there a bound that
    is rounded beyond itself becomes the number before (after) it, as in PyTorch.
    """
    least, most, exact = _limits(kind)
    for name, value in (("from", low), ("to - 1", high - 1)):
        if not least <= value <= most:
            raise RuntimeError(
                f"{name} is out of bounds for {kind.name}: {value} is not in [{least}, {most}]"
            )
        if kind.is_floating_point and not -exact <= value <= exact:
            warn_program(
                f"{name} is out of bounds [-{exact}, {exact}]. Due to precision limitations {kind.name} can support "
                "discrete uniform distribution only within this range."
            )
    if kind.is_floating_point:
        digits = DIGITS[kind.name]
        after, before = int(float(kind.numpy.type(low + 1))), int(float(kind.numpy.type(high - 1)))
        if after < low:
            low = after + (1 << (abs(low + 1).bit_length() - digits))
        if before >= high:
            high = before - (1 << (abs(high - 1).bit_length() - digits))
        if low >= high:
            raise RuntimeError(
                f"random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from={low} >= to={high}"
            )
    return low, high


class Variates:
    """What `Generator` draws besides uniform and normal numbers, integers and permutations."""

    __slots__ = ()

    def _unit(self, count: int, dtype: np.dtype[Any]) -> np.ndarray:
        raise NotImplementedError

    def _single_normals(self, count: int) -> list[float]: ...

    def _scalar_normal(self) -> float:
        raise NotImplementedError

    def _one(self) -> float:
        raise NotImplementedError

    def _fill(self, how: str, out: np.ndarray, *more: Any, draws: int = 1) -> bool:
        raise NotImplementedError

    def _words32(self, count: int) -> np.ndarray:
        raise NotImplementedError

    def _words64(self, count: int) -> np.ndarray:
        raise NotImplementedError

    def _double(self, shape: Shape) -> np.ndarray:
        """Uniform float64 numbers in [0, 1)."""
        return self._unit(math.prod(shape_tuple(shape)), np.dtype(np.float64)).reshape(shape_tuple(shape))

    @taped
    def exponential(self, shape: Shape, dtype: Any = np.float32, rate: float = 1.0) -> np.ndarray:
        """An array of `shape` from the exponential distribution with mean 1 / `rate`."""
        kind = floating(dtype)
        if not rate > 0.0:
            raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={rate}")
        unit = self._unit(math.prod(shape_tuple(shape)), np.dtype(np.float64))
        return (np.log1p(-unit) / -rate).astype(kind).reshape(shape_tuple(shape))

    @taped
    def bernoulli(self, p: float | np.ndarray, shape: Shape | None = None) -> np.ndarray:
        """A bool array, True with probability `p`: one number and a `shape`, or an array of probabilities."""
        if shape is not None:
            return self._below(float(p), shape_tuple(shape))
        probabilities = np.asarray(p)
        if not ((probabilities >= 0) & (probabilities <= 1)).all():
            raise RuntimeError("bernoulli needs probabilities in [0, 1]")
        unit = self._unit(probabilities.size, probabilities.dtype)
        return unit.reshape(probabilities.shape) < probabilities

    def _below(self, p: float, shape: tuple[int, ...]) -> np.ndarray:
        """A bool array of `shape`: where a uniform float64 number is below `p`."""
        check_probability(p)
        drawn = np.empty(math.prod(shape), np.bool_)
        # A number of 53 bits is below p when its bits, as an integer, are below this.
        limit = math.ceil(p * 2.0**53)
        if self._fill("below", drawn, np.uint64(limit), draws=2):
            return drawn.reshape(shape)
        for start in range(0, drawn.size, _DRAWS):  # words of one block stay in the cache
            block = drawn[start : start + _DRAWS]
            words = self._words32(2 * block.size)
            high = words[0::2] & np.uint64((1 << 21) - 1)
            np.less(high, limit >> 32, out=block)
            # The other 32 bits decide only once in two million draws.
            for i in np.flatnonzero(high == limit >> 32):
                block[i] = int(words[2 * i + 1]) < limit & 0xFFFFFFFF
        return drawn.reshape(shape)

    @taped
    def geometric(self, shape: Shape, p: float) -> np.ndarray:
        """A float64 array of `shape`: the number of trials up to the first success of probability `p`."""
        if not 0 < p < 1:
            raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
        return np.ceil(np.log(self._double(shape)) / math.log1p(-p))

    @taped
    def cauchy(
        self, shape: Shape, dtype: Any = np.float32, median: float = 0.0, sigma: float = 1.0
    ) -> np.ndarray:
        """An array of `shape` from the Cauchy distribution."""
        kind = floating(dtype)
        if not sigma > 0:
            raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
        return (median + sigma * np.tan(math.pi * (self._double(shape) - 0.5))).astype(kind)

    @taped
    def log_normal(
        self, shape: Shape, dtype: Any = np.float32, mean: float = 1.0, std: float = 2.0
    ) -> np.ndarray:
        """An array of `shape` of numbers whose logarithms are normal, with `mean` and `std`."""
        kind = floating(dtype)
        if not std > 0:
            raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
        count = math.prod(shape_tuple(shape))
        normal = np.array(self._single_normals(count), dtype=np.float64)
        return np.exp(normal * std + mean).astype(kind).reshape(shape_tuple(shape))

    @taped
    def whole(self, shape: Shape, dtype: dtypes.DType) -> np.ndarray:
        """An array of `shape` with integers from 0 to the largest that `dtype` holds exactly."""
        count, span = math.prod(shape_tuple(shape)), largest_whole(dtype) + 1
        words = self._words64(count) if dtype.itemsize == 8 else self._words32(count)
        return (words % np.uint64(span)).astype(np.int64).reshape(shape_tuple(shape))

    @taped
    def poisson(self, rates: np.ndarray) -> np.ndarray:
        """A float64 array of counts, one for each of `rates`."""
        rates = np.asarray(rates, dtype=np.float64)
        if not (rates >= 0).all():
            raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
        drawn = [self._poisson(rate) for rate in rates.reshape(-1).tolist()]
        return np.array(drawn, dtype=np.float64).reshape(rates.shape)

    def _poisson(self, rate: float) -> float:
        if rate >= _FEW:
            return self._poisson_by_rejection(rate)
        if rate == 0:
            return 0
        # Knuth's: how many uniform numbers can be multiplied before the product falls to exp(-rate).
        limit, product, count = math.exp(-rate), 1.0, 0
        while True:
            product *= self._one()
            if product <= limit:
                return count
            count += 1

    def _poisson_by_rejection(self, rate: float) -> float:
        """Transformed rejection with squeeze: https://doi.org/10.1016/0167-6687(93)90997-4 (PTRS)."""
        root, log_rate = math.sqrt(rate), math.log(rate)
        b = 0.931 + 2.53 * root
        a = -0.059 + 0.02483 * b
        inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
        accepted = 0.9277 - 3.6224 / (b - 2.0)
        while True:
            u = self._one() - 0.5
            v = self._one()
            distance = 0.5 - abs(u)
            count = math.floor((2.0 * a / distance + b) * u + rate + 0.43)
            if distance >= 0.07 and v <= accepted:
                return count
            if count < 0 or (distance < 0.013 and v > distance):
                continue
            left = math.log(v) + math.log(inverse_alpha) - math.log(a / (distance * distance) + b)
            if left <= -rate + count * log_rate - math.lgamma(count + 1):
                return count

    @taped
    def binomial(self, counts: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
        """A float64 array: how many of `counts` trials succeed, each with the probability beside it."""
        shape = np.broadcast_shapes(counts.shape, probabilities.shape)
        pairs = zip(
            np.broadcast_to(counts, shape).flat, np.broadcast_to(probabilities, shape).flat, strict=True
        )
        drawn = [self._binomial(float(n), float(p)) for n, p in pairs]
        return np.array(drawn, dtype=np.float64).reshape(shape)

    def _binomial(self, count: float, p: float) -> float:
        if math.isnan(count) or math.isnan(p):
            return math.nan
        if count <= 0 or p <= 0:
            return 0.0
        if p >= 1:
            return count
        if p > 0.5:
            return count - self._binomial(count, 1 - p)
        if count * p >= _FEW:
            return self._binomial_by_rejection(count, p)
        # How many geometric waiting times fit into `count` trials.
        waited, successes, log_miss = 0.0, 0, math.log1p(-p)
        while True:
            unit = self._one()
            waited += math.ceil(math.log(unit) / log_miss) if unit else math.inf
            if waited > count:
                return successes
            successes += 1

    def _binomial_by_rejection(self, count: float, p: float) -> float:
        """Transformed rejection: https://doi.org/10.1080/00949659308811496 (BTRS)."""
        deviation = math.sqrt(count * p * (1 - p))
        b = 1.15 + 2.53 * deviation
        a = -0.0873 + 0.0248 * b + 0.01 * p
        accepted = 0.92 - 4.2 / b
        odds = p / (1 - p)
        alpha = (2.83 + 5.1 / b) * deviation
        mode = math.floor((count + 1) * p)
        while True:
            u = self._one() - 0.5
            v = self._one()
            distance = 0.5 - abs(u)
            k = math.floor((2 * a / distance + b) * u + count * p + 0.5)
            if k < 0 or k > count:
                continue
            if distance >= 0.07 and v <= accepted:
                return k
            left = math.log(v * alpha / (a / (distance * distance) + b))
            # The logarithm of the probability of k over that of the mode.
            right = (k - mode) * math.log(odds) + _log_ways(count, k) - _log_ways(count, mode)
            if left <= right:
                return k

    @taped
    def standard_gamma(self, alpha: np.ndarray) -> np.ndarray:
        """A float64 array of draws from gamma distributions of shapes `alpha` and rate 1."""
        drawn = [self._gamma(a) for a in np.asarray(alpha, dtype=np.float64).reshape(-1).tolist()]
        return np.array(drawn, dtype=np.float64).reshape(alpha.shape)

    def _gamma(self, alpha: float) -> float:
        """By squeezed rejection from a normal number: https://doi.org/10.1145/358407.358414."""
        scale = 1.0
        if alpha < 1.0:
            if alpha == 0.0:
                return 0.0
            scale = (1 - self._one()) ** (1 / alpha)
            alpha += 1.0
        d = alpha - _THIRD
        c = 1 / math.sqrt(9 * d)
        while True:
            x = self._scalar_normal()
            while 1 + c * x <= 0:
                x = self._scalar_normal()
            v = (1 + c * x) ** 3
            u = 1 - self._one()
            square = x * x
            if u < 1 - 0.0331 * square * square or math.log(u) < 0.5 * square + d * (1 - v + math.log(v)):
                return scale * d * v

    @taped
    def multinomial(self, weights: np.ndarray, num_samples: int, replacement: bool = False) -> np.ndarray:
        """Indices drawn in proportion to `weights` (..., categories): int64 (..., num_samples)."""
        weights = np.asarray(weights)
        kind = floating(weights.dtype)
        categories = weights.shape[-1]
        if num_samples <= 0:
            raise RuntimeError(f"cannot sample n_sample <= 0 samples: num_samples is {num_samples}")
        if not replacement and num_samples > categories:
            raise RuntimeError(
                f"cannot sample n_sample > prob_dist.size(-1) samples without replacement: {num_samples} of {categories} "
                "categories; pass replacement=True or fewer samples"
            )
        with np.errstate(invalid="ignore"):
            if not (np.isfinite(weights).all() and (weights >= 0).all()):
                raise RuntimeError(
                    "invalid multinomial distribution: probability tensor contains either `inf`, `nan` or element < 0"
                )
            if not (weights.sum(-1) > 0).all():
                raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        if num_samples == 1 or not replacement:
            # The first of races whose speeds are the weights: https://doi.org/10.1016/j.ipl.2005.11.003
            scores = weights / self.exponential(weights.shape, kind)
            return largest(scores, num_samples)
        cumulative = np.cumsum(weights, axis=-1)
        cumulative /= cumulative[..., -1:]
        draws = self._unit(weights.size // categories * num_samples, np.dtype(np.float64))
        rows = zip(cumulative.reshape(-1, categories), draws.reshape(-1, num_samples), strict=True)
        found = np.stack([row.searchsorted(drawn) for row, drawn in rows])
        return found.astype(np.int64).reshape(*weights.shape[:-1], num_samples)


def shape_tuple(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def floating(dtype: Any) -> np.dtype[Any]:
    kind = dtypes.of(dtype)
    if not kind.is_floating_point:
        raise NotImplementedError(f"this distribution needs a floating-point dtype, got {kind!r}")
    return kind.numpy


def _log_ways(count: float, k: float) -> float:
    """log of the number of ways to choose k of `count`."""
    return math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
