"""Random tensors, new and in place. The generators are in `ddpgrad/random/__init__.py`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ...autograd.grad_mode import is_grad_enabled
from ...autograd.views import check_writable
from ...backend import dtype as dtypes
from ...backend.device import CPU
from ...backend.layout import memory_order
from ...core.overrides import overridable, overriding
from ...core.taping import taped
from ...core.tensor import Tensor
from ...random import Generator, source
from ...random.variates import largest_whole, within
from ..dispatch.out import write_out
from ..dispatch.tensor_function import tensor_function
from ..indexing.setitem import copy_, store
from ..shape.stacking import broadcast_shapes
from .factories import default_of, dtype_of_out, empty_like, factory, finish, like, number, shape_of


def _source(generator: Generator | None, like: Tensor | None = None) -> Generator:
    """What draws on the host, or for tensors like `like`."""
    if isinstance(generator, Generator) or generator is None:
        return source(generator, CPU if like is None else like.device)
    if isinstance(generator, (bool, int, float, str)):
        raise TypeError(f"argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    return generator  # which the factory has chosen by the device


def _read(t: Tensor) -> Any:
    """The raw array, without history."""
    return t.detach()._array


@taped
def _cast(drawn: Any, dtype: Any) -> Any:
    return drawn.astype(dtype, copy=False)


def _size(name: str, size: Any, options: dict[str, Any]) -> tuple[int, ...]:
    if "size" in options:
        size = (options.pop("size"),)
    if options:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(options))}'")
    return shape_of(name, size)


@factory
def rand(*size: Any, generator: Generator | None = None, dtype: Any = None, **options: Any) -> np.ndarray:
    """Uniform numbers in [0, 1); of complex types, in both parts."""
    shape, kind = _size("rand", size, options), default_of(dtype)
    if kind.kind != "c":
        return _source(generator).uniform(shape, kind)
    return _source(generator).uniform((*shape, 2), _part(kind)).view(kind)[..., 0]


@factory
def randn(*size: Any, generator: Generator | None = None, dtype: Any = None, **options: Any) -> np.ndarray:
    """Normal numbers with mean 0 and variance 1."""
    shape, kind = _size("randn", size, options), default_of(dtype)
    if kind.kind != "c":
        return _source(generator).normal(shape, kind)
    return _source(generator).normal((*shape, 2), _part(kind), 0.0, 0.5**0.5).view(kind)[..., 0]


def _part(kind: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"f{kind.itemsize // 2}")


@factory
def randint(
    low: Any = 0, high: Any = None, size: Any = None, *, generator: Generator | None = None, dtype: Any = None
) -> np.ndarray:
    """Integers in [low, high); `randint(high, size)` starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    low, high = operator.index(number(low)), operator.index(number(high))
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    kind = dtypes.of(dtype or dtypes.int64)
    low, high = within(kind, low, high)
    array = _source(generator).integers(low, high, shape_of("randint", (size,)))
    return _cast(array, kind.numpy)


def _randint_of_shape(size: Any, low: Any = None, high: Any = None, **options: Any) -> Tensor:
    if high is None:
        low, high = 0, low  # the one number that was given without a name
        if high is None:
            raise TypeError("randint_like() missing 1 required positional argument: 'high'")
    return randint(0 if low is None else low, high, size, **options)


_randint_of_shape.__name__ = "randint"


@factory
def randperm(n: int, *, generator: Generator | None = None, dtype: Any = None) -> np.ndarray:
    """A random order of 0 … n-1."""
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    kind = dtypes.of(dtype or dtypes.int64)
    if kind.category in (0, 3):
        raise NotImplementedError(f"\"randperm\" not implemented for '{kind.scalar_type}'")
    if kind.is_floating_point and n > largest_whole(kind) + 1:
        raise RuntimeError(
            f"n is too large for result tensor type: '{kind.name}' does not hold all of 0 … {n - 1}"
        )
    within(kind, 0, max(n, 1))
    return _cast(_source(generator).permutation(n), kind.numpy)


rand_like, randint_like = like(rand), like(_randint_of_shape)


@overridable
def randn_like(
    input: Tensor, *, generator: Generator | None = None, requires_grad: bool = False, **options: Any
) -> Tensor:
    """`randn` with the shape, dtype, device and order in memory of `input`."""
    out: Tensor = empty_like(input, **options)
    METHODS["normal_"](out, generator=generator)
    out.requires_grad = requires_grad
    return out


@factory
def _normal(
    shape: tuple[int, ...],
    moments: tuple[float, float],
    *,
    generator: Generator | None = None,
    dtype: Any = None,
) -> np.ndarray:
    return _source(generator).normal(shape, default_of(dtype), *moments)


@tensor_function(out=True)
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices drawn with the probabilities that the rows of `input` are proportional to."""
    if input.ndim not in (1, 2):
        raise RuntimeError(f"prob_dist must be 1 or 2 dim, got {input.ndim}")
    if not input.is_floating_point():
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {input.dtype}")
    drawn = _source(generator, input).multinomial(_read(input), num_samples, replacement)
    return finish(drawn, input.device)


def _without_slope(drawn: Tensor, *given: Any) -> Tensor:
    """What was drawn; recorded, with gradients of zero, where the parameters are, as in PyTorch."""
    recorded = [t for t in given if isinstance(t, Tensor) and t.requires_grad]
    if not recorded or not is_grad_enabled():
        return drawn
    from ...autograd.function import Function  # here, as few draws are recorded

    class Draw(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            ctx.shapes = [t.shape for t in inputs]
            return drawn

        @staticmethod
        def backward(ctx: Any, *grad_outputs: Any) -> Any:
            return tuple((grad_outputs[0] * 0).sum_to_size(shape) for shape in ctx.shapes)

    return Draw.apply(*recorded)


@tensor_function(out=True)
def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """0 or 1 for each element, 1 with the probability that the element (or `p`) is."""
    if p is not None:
        return input.new_empty(input.shape).bernoulli_(p, generator=generator)
    if input.dtype.category < 2:
        raise NotImplementedError(
            f"\"bernoulli\" not implemented for '{input.dtype.scalar_type}': probabilities are floating point"
        )
    drawn = _source(generator, input).bernoulli(_read(input))
    return _without_slope(finish(_cast(drawn, input.dtype.numpy), input.device), input)


@overridable
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Counts drawn from the Poisson distributions whose rates are the elements."""
    if not input.is_floating_point():
        raise NotImplementedError(
            f"\"poisson\" not implemented for '{input.dtype.scalar_type}': rates are floating point"
        )
    drawn = _source(generator, input).poisson(_read(input))
    return _without_slope(finish(_cast(drawn, input.dtype.numpy), input.device), input)


@overridable
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of `count` trials succeed, each with probability `prob`; both are broadcast against each other."""
    if not count.is_floating_point():
        raise ValueError(f"binomial only supports floating-point dtypes for count, got: {count.dtype.name}")
    if count.dtype is not prob.dtype:
        raise RuntimeError(
            f"binomial(): expected prob of dtype {count.dtype.name} but found {prob.dtype.name}"
        )
    drawn = _source(generator, count).binomial(_read(count), _read(prob))
    return finish(_cast(drawn, count.dtype.numpy), count.device)


@overridable
def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None, out: Tensor | None = None,
    dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any,
) -> Tensor:  # fmt: skip
    """Normal numbers: of one mean and deviation in the shape `size`, or one for each element of the tensors given."""
    if isinstance(std, Tensor) and std.numel() and not std.is_meta and bool((std < 0).any()):
        raise RuntimeError("normal expects all elements of std >= 0.0")
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    if out is not None and not tensors:
        dtype, device = dtype_of_out(dtype, out), out.device
    if not tensors:
        numbers: Any = (mean, std)
        result = _normal(
            shape_of("normal", (size,)),
            numbers,
            generator=generator,
            dtype=dtype,
            device=device,
            requires_grad=requires_grad,
        )
    else:
        shape = tuple(broadcast_shapes(*[t.shape for t in tensors]))
        kind = tensors[0].dtype
        unit = std if not isinstance(std, Tensor) else 1.0
        drawn = finish(_source(generator, tensors[0]).normal(shape, kind.numpy, 0.0, unit), tensors[0].device)
        result = (drawn * std.detach() if isinstance(std, Tensor) else drawn) + (
            mean.detach() if isinstance(mean, Tensor) else mean
        )
        result = result if out is not None else _without_slope(result, mean, std)
    return result if out is None else write_out("normal", out, result, (mean, std), warns=bool(tensors))


# -- in place ------------------------------------------------------------------------------------


def _memory_shape(self: Tensor) -> tuple[int, ...]:
    """The shape with the dimensions in the order of memory, in which PyTorch draws."""
    array = self._array
    if array.flags.c_contiguous:  # whatever the strides of dimensions of size 1
        return array.shape
    return tuple([array.shape[d] for d in memory_order(array)])


def _overwrite(self: Tensor, drawn: np.ndarray) -> Tensor:
    """Put in place what was drawn in `_memory_shape`."""
    drawn = _cast(drawn, self.dtype.numpy)
    if not self._array.flags.c_contiguous:
        drawn = drawn.transpose(np.argsort(memory_order(self._array)))
    if (
        overriding
        or drawn.__class__ is not self._array.__class__
        or (self._requires_grad and is_grad_enabled())
    ):
        return copy_(self, finish(drawn, self.device))
    store(self, drawn)
    return self


def _drawing(name: str, first: float, second: float | None, names: tuple[str, ...]) -> Callable[..., Tensor]:
    """`Tensor.<name>_(...)`: overwrite with draws of `Generator.<name>`."""

    def method(self: Tensor, *args: Any, generator: Generator | None = None, **kwargs: Any) -> Tensor:
        check_writable(f"{name}_", self)
        if self.dtype.category < 2:
            error = RuntimeError if name == "exponential" else NotImplementedError
            raise error(
                f"\"{name}_\" not implemented for '{self.dtype.scalar_type}': it draws floating-point numbers"
            )
        given = [first] if second is None else [first, second]
        for i, value in enumerate(args):
            given[i] = number(value)
        for key, value in kwargs.items():
            if key not in names:
                raise TypeError(
                    f"{name}_() got an unexpected keyword argument '{key}'; it has {', '.join(names)}"
                )
            given[names.index(key)] = number(value)
        source = _source(generator, self)
        if self.dtype.is_complex:
            if name not in ("normal", "uniform"):
                raise NotImplementedError(f"\"{name}_\" not implemented for '{self.dtype.scalar_type}'")
            if name == "normal":
                given[1] *= 0.5**0.5
        shape, kind = _memory_shape(self), self.dtype.numpy
        if self.dtype.is_complex:
            shape, kind = (*shape, 2), _part(kind)
        if name == "normal":
            drawn = source.normal(shape, kind, *given, in_blocks=self._array.flags.c_contiguous)
        else:
            drawn = getattr(source, name)(shape, kind, *given)
        return _overwrite(self, drawn.view(self.dtype.numpy)[..., 0] if self.dtype.is_complex else drawn)

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"Overwrite with draws of `Generator.{name}`."
    return method


def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Overwrite with the numbers of trials up to the first success, each of probability `p`."""
    check_writable("geometric_", self)
    if self.dtype.category in (0, 3):
        raise NotImplementedError(f"\"geometric_\" not implemented for '{self.dtype.scalar_type}'")
    return _overwrite(self, _source(generator, self).geometric(_memory_shape(self), p))


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Overwrite with 0 and 1, 1 with probability `p`: a number, or a tensor that broadcasts to this one."""
    check_writable("bernoulli_", self)
    wrong = self if self.dtype.is_complex else p
    if isinstance(wrong, Tensor) and not wrong.is_floating_point():
        raise NotImplementedError(f"\"bernoulli_\" not implemented for '{wrong.dtype.scalar_type}'")
    if isinstance(p, Tensor):
        chances = np.broadcast_to(_read(p.to(self.device)), tuple(self.shape))
        return _overwrite(
            self, _source(generator, self).bernoulli(chances.transpose(memory_order(self._array)))
        )
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return _overwrite(self, _source(generator, self).bernoulli(p, _memory_shape(self)))


def random_(self: Tensor, *bounds: int | None, generator: Generator | None = None, **named: Any) -> Tensor:
    """Overwrite with whole numbers: `random_(to)`, in [0, to); `random_(from, to)`, in [from, to).

    `to` None is the largest of an integer dtype, or 2**digits of a floating-point one, included; without bounds
    they are from 0 to that.
    """
    check_writable("random_", self)
    names = ("from", "to") if len(bounds) + len(named) > 1 else ("to",)
    given = {**dict(zip(names, bounds, strict=False)), **named}
    if len(given) != len(bounds) + len(named) or tuple(sorted(given)) not in ((), ("to",), ("from", "to")):
        raise TypeError(
            f"random_() takes (), (to) or (from, to), got {len(bounds)} numbers and the arguments {sorted(named)}"
        )
    shape, kind = _memory_shape(self), self.dtype
    if kind.is_complex:
        raise NotImplementedError(f"\"random_\" not implemented for '{kind.scalar_type}'")
    if not given:
        return _overwrite(self, _source(generator, self).whole(shape, kind))
    low, high = given.get("from", 0), given["to"]
    if low is None or (high is None and "from" not in given):
        raise TypeError("random_(): only the second of two bounds can be None")
    low = int(number(low))
    high = largest_whole(kind) + 1 if high is None else int(number(high))
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    low, high = within(kind, low, high)
    return _overwrite(self, _source(generator, self).integers(low, high, shape))


METHODS = {
    "uniform_": _drawing("uniform", 0.0, 1.0, ("from", "to")),
    "normal_": _drawing("normal", 0.0, 1.0, ("mean", "std")),
    "exponential_": _drawing("exponential", 1.0, None, ("lambd",)),
    "cauchy_": _drawing("cauchy", 0.0, 1.0, ("median", "sigma")),
    "log_normal_": _drawing("log_normal", 1.0, 2.0, ("mean", "std")),
    "geometric_": geometric_,
    "bernoulli_": bernoulli_,
    "random_": random_,
}
"""Methods of Tensor that overwrite it with random numbers."""
