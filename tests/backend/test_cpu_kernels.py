"""Each compiled CPU kernel computes what the portable body of the same name computes.

Shapes are uneven on purpose: they leave a rest in every vector, block, tile and group of images.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch  # which declares the ops, whose portable bodies are the reference
from ddpgrad import environment
from ddpgrad.backend.cpu import load
from ddpgrad.backend.cuda import tracing
from ddpgrad.nn.functional import ctc  # noqa: F401 - declares a kernel beside its loss
from ddpgrad.ops.layers.resample import clamped, windows

pytestmark = pytest.mark.skipif(
    not environment.numba_enabled(), reason="DDPGRAD_NUMBA=0 switches the kernels off"
)

NATIVE = load()
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("DDPGRAD_NUMBA", "0")
    PORTABLE = load()
ERROR = {np.float32: 3e-5, np.float64: 1e-12}
Case = tuple[str, Callable[[Callable[..., np.ndarray]], tuple[Any, ...]]]


# Kernels of one array and of a gradient and one array, with their options.
PIECES: list[tuple[str, tuple[Any, ...]]] = [
    ("leaky_relu", (0.2,)), ("scaled_elu", (1.5, 0.5, 2.0)), ("softplus", (2.0, 3.0)), ("hardshrink", (0.8,)),
    ("softshrink", (0.8,)), ("threshold", (0.3, -2.0)), ("clamp", (-0.5, 1)), ("clamp", (None, 0.5)),
    ("clamp", (0.5, -0.5)), ("hardsigmoid", ()), ("hardswish", ()), ("sigmoid", ()), ("huber", (0.7, 2.0)),
]  # fmt: skip
SLOPES: list[tuple[str, tuple[Any, ...]]] = [
    ("leaky_relu_backward", (0.2,)), ("scaled_elu_backward", (1.5, 0.5, 2.0)), ("softplus_backward", (2.0, 3.0)),
    ("shrink_backward", (0.8,)), ("threshold_backward", (0.3,)), ("clamp_backward", (-0.5, 1)),
    ("clamp_backward", (None, 0.5)), ("hardsigmoid_backward", ()), ("hardswish_backward", ()), ("square_backward", ()),
    ("huber_backward", (0.7, 2.0)), ("sigmoid_backward", ()),
]  # fmt: skip


def _cases() -> Iterator[Case]:
    """(kernel, arguments): the latter are given a function that makes random arrays of a shape."""
    for mode in ("none", "tanh"):
        yield "gelu", lambda x, mode=mode: (4 * x(5, 37), mode)
        yield "gelu_backward", lambda x, mode=mode: (x(5, 37), 4 * x(5, 37), mode)
    yield "silu", lambda x: (4 * x(5, 37),)
    yield "silu_backward", lambda x: (x(5, 37), 4 * x(5, 37))
    for name in ("softmax", "log_softmax"):
        yield name, lambda x: (20 * x(2, 3, 67), 2)
        yield name, lambda x: (x(6, 67).T, 1)
        for dim in (0, 1):
            yield name, lambda x, dim=dim: (20 * x(2, 5, 300), dim)
            yield f"{name}_backward", lambda x, d=dim, name=name: (x(3, 5, 300), _softened(name, x, d), d)
        yield f"{name}_backward", lambda x, name=name: (x(7, 67), getattr(PORTABLE, name)(x(7, 67), 1), 1)
    yield "layer_norm", lambda x: (x(7, 67) + 3, x(67), x(67), 1, 1e-5)
    yield "layer_norm", lambda x: (x(4, 3, 7), None, None, 2, 1e-5)
    yield "layer_norm_backward", lambda x: (x(7, 67), *_normal(x(7, 67), 1, 1), x(67), x(67))
    yield "batch_norm", lambda x: (x(5, 3, 7, 3) + 3, x(3), None, 1e-5)
    yield "batch_norm", lambda x: (x(9, 3), None, x(3), 1e-5)
    for shape in ((5, 3, 7, 3), (9, 3)):
        axes = (0, *range(2, len(shape)))
        yield (
            "batch_norm_backward",
            lambda x, s=shape, axes=axes: (x(*s), *_normal(x(*s), axes, None), x(3), x(3)),
        )
    target = np.array([3, 0, -100, 10, 4], np.int64)
    for reduction, smoothing, weight, order in itertools.product(
        ("mean", "sum", "none"), (0.0, 0.1), (None, np.linspace(0, 2, 11)), "CF"
    ):
        options = (order, target, weight, -100, smoothing, reduction)
        yield "cross_entropy_rows", lambda x, o=options: (np.asarray(9 * x(5, 11), order=o[0]), *o[1:])
        yield "cross_entropy_backward", lambda x, options=options: _cross_entropy(x, *options)
    for causal in (False, True):
        for t, s in ((130, 130), (1, 300), (200, 70), (70, 200)):
            yield ("attention", lambda x, c=causal, t=t, s=s: (*_heads(x, t, s), None, c, 0.3))
            yield "attention_backward", lambda x, c=causal, t=t, s=s: _attention(x, t, s, c)
    indices = np.array([[4, 1, 4], [0, 2, 4]], np.int64)
    yield "embedding_backward", lambda x: (x(2, 3, 5), indices, 6, None)
    yield "embedding_backward", lambda x: (x(2, 3, 5), indices, 6, 4)
    for size in (1, 2049, 5000):
        yield "dropout", lambda x, size=size: (x(size), 0.3, (np.arange(size) % 3).astype(np.uint8) // 2)
    yield "linear", lambda x: (x(2, 3, 5), x(7, 5), x(7))
    yield "linear", lambda x: (np.broadcast_to(x(1), (3, 5)), x(5, 7).T, None)
    for shape, weight, stride, padding, dilation, groups in (
        ((3, 17, 9, 12), (20, 17, 3, 3), (1, 1), (1, 1), (1, 1), 1),  # Winograd
        ((4, 16, 7, 5), (16, 16, 3, 3), (1, 1), (0, 2), (1, 1), 1),
        ((40, 16, 4, 4), (18, 16, 3, 3), (1, 1), (1, 1), (1, 1), 1),
        ((70, 3, 9, 8), (4, 3, 3, 2), (2, 1), (1, 0), (1, 2), 1),  # columns
        ((3, 4, 19, 20), (6, 2, 5, 3), (1, 3), (2, 1), (1, 1), 2),
        ((3, 5, 8, 9), (140, 5, 3, 2), (2, 1), (1, 1), (1, 1), 1),  # many outputs
        ((5, 4, 6, 6), (8, 4, 1, 1), (2, 2), (0, 0), (1, 1), 1),  # a product
        ((3, 4, 3, 3), (8, 4, 1, 1), (4, 4), (1, 1), (1, 1), 1),
    ):
        options = (stride, padding, dilation, groups)
        yield from _convolutions(shape, weight, (stride, padding, dilation, groups))
    for shape, weight, stride, padding, dilation, groups in (
        ((3, 4, 11, 12), (4, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4),  # depthwise
        ((2, 3, 9, 12), (6, 1, 2, 4), (2, 3), (3, 4), (3, 2), 3),
        ((3, 4, 19), (6, 2, 5), (3,), (2,), (2,), 2),  # signals and volumes
        ((2, 3, 5, 6, 4), (4, 3, 2, 3, 3), (2, 1, 1), (1, 1, 0), (3, 1, 1), 1),
        ((2, 3, 2, 6, 4), (3, 1, 3, 1, 2), (1, 2, 1), (3, 0, 1), (1, 1, 2), 3),
        ((3, 4, 9), (6, 4, 3), (3,), (0,), (1,), 1),  # tiles, with and without a rest
        ((2, 3, 7, 9), (5, 3, 2, 4), (2, 4), (0, 0), (1, 1), 1),
        ((2, 3, 4, 3, 6), (2, 3, 2, 1, 3), (2, 1, 3), (0, 0, 0), (1, 1, 1), 1),
    ):
        yield from _convolutions(shape, weight, (stride, padding, dilation, groups))
    for shape, kernel, stride, padding, dilation, ceil in (
        ((2, 3, 8, 9), (2, 2), (2, 2), (0, 0), (1, 1), False),
        ((2, 3, 7, 9), (2, 2), (2, 2), (0, 0), (1, 1), True),
        ((2, 3, 11, 12), (3, 2), (1, 3), (1, 1), (2, 1), False),
        ((2, 3, 9, 8), (3, 3), (2, 2), (1, 1), (1, 1), True),
        ((2, 3, 9), (3,), (2,), (1,), (2,), True),
        ((2, 3, 5, 7, 6), (2, 3, 2), (2, 1, 3), (1, 1, 0), (1, 2, 1), False),
    ):
        yield "max_pool", lambda x, s=shape, o=(kernel, stride, padding, dilation, ceil): (x(*s), *o)
    places = np.array([[4, 1, 4, 0], [0, 2, 2, 3]], np.int64)
    yield "take_places", lambda x: (x(2, 3, 5), places)
    yield "add_places", lambda x: (x(2, 3, 4), places, 5)
    for o in itertools.product(range(3), range(3), (False, True)):  # mode, padding, corners
        image, out = ((2, 3, 5, 4), (9, 9)) if o[0] else ((2, 3, 2, 5, 4), (3, 4, 9))
        at = (2, *out, len(out))
        yield "grid_sampler", lambda x, s=image, at=at, o=o: (x(*s), x(*at), *o)
        g = (2, 3, *out)
        yield (
            "grid_sampler_backward",
            lambda x, g=g, s=image, at=at, o=o: (x(*g), x(*s), x(*at), *o, (True, True)),
        )
    bands = clamped(np.array([[-1, 0, 1], [1, 2, 3], [4, 5, 6]]), np.array([[1.0, 2, 3]] * 3), 6)
    for dim in (0, 1, 2):
        shape = [2, 4, 5]
        yield "resample", lambda x, s=(*shape[:dim], 6, *shape[dim + 1 :]), d=dim: (x(*s), d, bands)
        yield (
            "resample_transposed",
            lambda x, s=(*shape[:dim], 3, *shape[dim + 1 :]), d=dim: (x(*s), d, bands),
        )
    picks = windows(np.array([1, 0, 3, 3]), np.array([2, 1, 4, 4]), 1, 6)
    for dim in (1, 2):
        yield "resample", lambda x, d=dim: (x(2, 6, 6), d, picks)
        yield "resample_transposed", lambda x, d=dim: (x(2, 4, 4), d, picks)
    patches = ((3, 2), (1, 2), (1, 0), (2, 1))
    yield "im2col", lambda x: (x(2, 3, 9, 20), *patches)
    yield "col2im", lambda x: (x(2, 18, 90), (9, 20), *patches)
    yield "sum_of_squares", lambda x: (x(3, 333),)
    yield "relu", lambda x: (x(5, 37),)
    for name, options in PIECES:
        yield name, lambda x, options=options: (3 * x(37, 41), *options)
    for name, options in SLOPES:
        yield name, lambda x, options=options: (x(37, 41), 3 * x(37, 41), *options)
        yield name, lambda x, options=options: (np.broadcast_to(x(1), (37, 41)), 3 * x(37, 41), *options)
    for numbers in ((), (0,), (1,)):
        yield "where", lambda x, numbers=numbers: _choice(x, numbers)
    for reduction in ("mean", "sum", "none"):
        yield "nll_loss_rows", lambda x, r=reduction: (x(5, 11), target, None, -100, r)
        yield "nll_loss_rows", lambda x, r=reduction: (x(5, 11), np.abs(target) % 11, np.abs(x(11)), 4, r)
        yield "nll_loss_backward", lambda x, r=reduction: _nll(x, r)
    for dim in (None, (0, 2), 0, (1, 2), (0, 1)):
        yield "sum", lambda x, dim=dim: (x(11, 30, 37), dim)


def _convolutions(shape: tuple[int, ...], weight: tuple[int, ...], options: Any) -> Iterator[Case]:
    size = PORTABLE.convolution(np.zeros(shape), np.zeros(weight), None, *options).shape
    yield "convolution", lambda x: (x(*shape), x(*weight), x(weight[0]), *options)
    yield "convolution_input", lambda x: (x(*size), x(*weight), shape, *options)
    yield "convolution_weight", lambda x: (x(*size), x(*shape), weight, *options)


def _softened(name: str, x: Any, dim: int) -> np.ndarray:
    return getattr(PORTABLE, name)(x(3, 5, 300), dim)


def _normal(x: np.ndarray, axis: Any, ndim: int | None) -> Any:
    """(x, placeholders for weight and bias, options, mean, rstd): see `_arranged`."""
    return x, axis, ndim


def _cross_entropy(x: Any, order: Any, target: np.ndarray, *options: Any) -> tuple[Any, ...]:
    logits = np.asarray(x(5, 11), order=order)
    g = x(5) if options[-1] == "none" else x(1).reshape(())
    top = logits.max(1)
    sums = np.stack([top, np.log(np.exp(logits - top[:, None]).sum(1))])
    return g, logits, target, *options, sums


def _nll(x: Any, reduction: str) -> tuple[Any, ...]:
    g = x(5) if reduction == "none" else x(1).reshape(())
    share = np.abs(x(5)) * np.array([1, 1, 0, 1, 1], x(1).dtype)
    return g, x(5, 11), reduction, np.arange(5), share, share.sum() if reduction == "mean" else None


def _choice(x: Any, numbers: tuple[int, ...]) -> tuple[Any, ...]:
    return x(37, 41) > 0, *(0.5 if i in numbers else x(37, 41) for i in range(2))


def _heads(x: Any, t: int, s: int) -> tuple[np.ndarray, ...]:
    """query, key and value (2, 3, *, 8) as a model has them: heads transposed, strided."""
    return tuple(x(2, n, 3, 8).transpose(0, 2, 1, 3) for n in (t, s, s))


def _attention(x: Any, t: int, s: int, causal: bool) -> tuple[Any, ...]:
    query, key, value = _heads(x, t, s)
    out, lse = NATIVE.attention(query, key, value, None, causal, 0.3)
    g = np.broadcast_to(x(1), out.shape) if t == 130 else x(*out.shape)
    return g, query, key, value, None, causal, 0.3, out, lse


def _arranged(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Put mean and rstd, which belong to the input, where the gradients of the norms take them."""
    if name not in ("layer_norm_backward", "batch_norm_backward"):
        return args
    g, x, axis, ndim, weight, bias = args
    mean = x.mean(axis)
    rstd = (1 / np.sqrt(x.var(axis) + 1e-5)).astype(x.dtype)
    return (g, x, weight, bias, *(() if ndim is None else (ndim,)), 1e-5, mean, rstd)


CASES = list(_cases())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{i}-{name}" for i, (name, _) in enumerate(CASES)])
def test_agrees_with_the_portable_body(case: int, dtype: type) -> None:
    name, make = CASES[case]
    rng = np.random.default_rng(case)
    args = _arranged(name, make(lambda *shape: rng.standard_normal(shape).astype(dtype)))
    before = [a.copy() for a in args if isinstance(a, np.ndarray)]
    found = getattr(NATIVE, name)(*args)
    exact = [a.astype(np.float64) if isinstance(a, np.ndarray) and a.dtype == dtype else a for a in args]
    wanted = getattr(PORTABLE, name)(*exact)
    found, wanted = (v if isinstance(v, tuple) else (v,) for v in (found, wanted))
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        if theirs is None:  # what only the compiled backward needs, or no weight
            continue
        assert np.shape(ours) == np.shape(theirs)
        scale = max(1.0, float(np.abs(theirs).max()))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=ERROR[dtype] * scale)
        if isinstance(ours, np.ndarray) and ours.dtype.kind == "f":
            assert ours.dtype == dtype
    for old, new in zip(before, (a for a in args if isinstance(a, np.ndarray)), strict=True):
        np.testing.assert_array_equal(old, new)


def test_nan_and_infinity_come_through() -> None:
    nan, inf = math.nan, math.inf
    rows = np.array([[nan, 1, 2], [1, 2, inf], [-inf, 1, 2], [-inf, -inf, -inf]], np.float32)
    out = NATIVE.softmax(rows, 1)
    assert np.isnan(out[[0, 1, 3]]).all()
    np.testing.assert_allclose(out[2], [0, 0.26894143, 0.73105857], rtol=1e-6)
    for name in ("softmax", "log_softmax"):
        along = getattr(NATIVE, name)(np.ascontiguousarray(rows.T), 0)
        np.testing.assert_allclose(along.T, getattr(NATIVE, name)(rows, 1), rtol=1e-6)
    assert np.isnan(NATIVE.gelu(np.array([nan], np.float32))[0])
    image = np.zeros((1, 1, 2, 4), np.float32)
    image[0, 0, :, 1] = nan
    image[0, 0, 1, 3] = inf
    out, indices = NATIVE.max_pool(image, (2, 2), (2, 2), (0, 0), (1, 1), False)
    np.testing.assert_array_equal(out.ravel(), [nan, inf])
    assert indices.ravel().tolist() == [5, 7]  # the last NaN, as PyTorch has it


@pytest.mark.parametrize("name", [name for name, _ in PIECES])
def test_activations_in_pieces_let_nan_and_infinity_through(name: str) -> None:
    options = dict(PIECES)[name]
    x = np.full(2000, 0.5, np.float32)
    x[:3] = math.nan, math.inf, -math.inf
    np.testing.assert_allclose(
        getattr(NATIVE, name)(x, *options), getattr(PORTABLE, name)(x, *options), rtol=1e-6
    )


def test_sums_over_alignments() -> None:
    rng = np.random.default_rng(0)
    log_probs = np.log(rng.dirichlet(np.ones(4), (9, 5)))
    labels = np.array([[1, 2, 2, 3], [0, 3, 9, 9], [9, 9, 9, 9], [9, 9, 9, 9], [1, 1, 1, 1]])
    lengths, sizes = np.array([9, 6, 3, 0, 5]), np.array([4, 2, 0, 0, 4])
    found = NATIVE.ctc_alignments(log_probs, labels % 4, lengths, sizes, 0)
    wanted = PORTABLE.ctc_alignments(log_probs, labels % 4, lengths, sizes, 0)
    assert found[0][4] == np.inf  # too short for its repeated labels
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    with pytest.raises(IndexError):
        NATIVE.ctc_alignments(log_probs, labels, lengths, sizes + 1, 0)


def test_float32_elu_and_softplus_lose_no_digits() -> None:
    x = np.concatenate([-np.geomspace(1e-30, 80, 50_000), np.geomspace(1e-30, 30, 5_000)]).astype(np.float32)
    exact = x.astype(np.float64)
    below = NATIVE.scaled_elu(x, 1.0, 1.0, 1.0)
    wanted = np.where(exact > 0, exact, np.expm1(np.minimum(exact, 0)))
    assert np.abs(below / wanted - 1).max() < 4e-7
    assert np.abs(NATIVE.softplus(x, 1.0, 100.0) / np.logaddexp(0, exact) - 1).max() < 4e-7


def test_float32_exponential_is_accurate_over_its_whole_range() -> None:
    # One column against a large 0 gives exp(x) / (1 + exp(x)) for x <= 0, in which nothing cancels.
    x = np.linspace(-86, 0, 100_001, dtype=np.float32)
    out = NATIVE.softmax(np.stack([x, np.zeros_like(x)], axis=1), 1)[:, 0]
    exact = np.exp(x.astype(np.float64))
    exact /= 1 + exact
    assert np.abs(out / exact - 1).max() < 4e-7


def a_rule(F: Any, param: Any, grad: Any, a: Any, b: Any, rate: Any, most: Any) -> Any:
    """Uses everything that an optimizer's rule may take from F."""
    a = F.where(grad * a < 0, 0.0, a + F.sign(grad))
    b = F.minimum(F.maximum(b, F.abs(grad)), most)
    return param - rate * a / (1 + F.sqrt(b)), a, b


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_optimizer_rule_compiled_agrees_with_arrays(dtype: type) -> None:
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((4, 101)).astype(dtype)
    arrays[1, 0] = np.nan
    options = ((0.1, 1.5), -0.5, 0.1, 0.9)  # numbers, scale, decay, shrink
    found, wanted = arrays.copy(), arrays.copy()
    for _ in range(3):
        NATIVE.update_(a_rule, [tuple(found[:, :50]), tuple(found[:, 50:])], *options)
        PORTABLE.update_(a_rule, [tuple(wanted)], *options)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=ERROR[dtype])
    assert np.array_equal(found[1], arrays[1], equal_nan=True)


def test_numbers_of_an_update_may_lie_on_the_device() -> None:
    param, grad = np.ones(3, np.float32), np.full(3, 2, np.float32)
    rule = lambda F, param, grad, lr: param - lr * grad  # noqa: E731
    PORTABLE.update_(rule, [(param, grad)], [np.array(0.25)], skip=np.array(True))
    assert param.tolist() == [1, 1, 1]
    PORTABLE.update_(rule, [(param, grad)], [np.array(0.25)], np.array(0.5), skip=np.array(False))
    assert param.tolist() == [0.75, 0.75, 0.75]


def test_an_optimizer_rule_written_down_as_cuda_says_the_same() -> None:
    names = ["p", "g", "a", "b", "rate", "most"]
    statements, results = tracing.traced(a_rule, *names[:2], names[2:4], names[4:])
    # Function calls and arithmetic are the same text in C++ and in Python.
    program = "\n".join(line.removeprefix("const auto ").rstrip(";") for line in statements)
    functions = {
        f"f_{name}": getattr(PORTABLE, name)
        for name in ("where", "maximum", "minimum", "sign", "abs", "sqrt")
    }
    rng = np.random.default_rng(0)
    values = [*rng.standard_normal((4, 20)), 0.1, 1.5]
    scope = {**functions, "A": float, **dict(zip(names, values, strict=True))}
    exec(program, scope)
    for name, wanted in zip(results, a_rule(PORTABLE, *values), strict=True):
        np.testing.assert_array_equal(scope[name], wanted)
    with pytest.raises(AttributeError, match=r"uses F\.tanh"):
        tracing.traced(lambda F, param, grad: F.tanh(grad), "p", "g", [], [])
    with pytest.raises(TypeError, match=r"must use F\.where in place of if"):
        tracing.traced(lambda F, param, grad: param if grad > 0 else grad, "p", "g", [], [])


def test_cross_entropy_refuses_a_target_out_of_range() -> None:
    logits = np.zeros((2, 3), np.float32)
    with pytest.raises(IndexError, match="Target 3 is out of bounds"):
        NATIVE.cross_entropy_rows(logits, np.array([0, 3]), None, -100, 0.0, "mean")
    loss, _ = NATIVE.cross_entropy_rows(logits, np.array([-100, -100]), None, -100, 0.0, "mean")
    assert np.isnan(loss)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_16_bit_numbers_are_converted_as_by_numpy(half):
    """Every one of them to float32; and float32 near each, halfway between two, too large, and no number."""
    every = np.arange(1 << 16, dtype=np.uint16).view(half.numpy)
    wide = every.astype(np.float32)
    steps = np.arange(-(1 << 13), 1 << 13, 1 << 10).astype(np.int32)[:, None]
    near = (wide.view(np.int32) + np.concatenate([steps, steps + 1, steps << 3, steps << 4])).view(np.float32)
    other = torch.bfloat16 if half is torch.float16 else torch.float16
    tensor = torch.from_numpy(every.copy())
    with np.errstate(all="ignore"):
        cases = [
            (torch.from_numpy(near).to(half), near.astype(half.numpy)),
            (tensor.float(), wide),
            (tensor.to(other), wide.astype(other.numpy)),
        ]
    for got, expected in cases:
        number = ~np.isnan(expected.astype(np.float32))
        assert got._array[number].tobytes() == expected[number].tobytes()
        assert got.isnan().numpy()[~number].all()  # which of the many, the processor chooses


@pytest.mark.parametrize("name", ["softplus", "gelu", "silu", "sigmoid"])
def test_bits_of_an_activation_do_not_depend_on_where_an_element_lies(name: str):
    x = torch.randn(40, 67) * 3
    function = getattr(torch.nn.functional, name)
    whole = function(x).numpy()
    for rows in (x[:, 3:], x[1:, ::2], x[5], x[:, 7], x[:3, :2].t(), x[2, 2]):
        place = rows.storage_offset() + sum(
            step * np.indices(rows.shape)[k] for k, step in enumerate(rows.stride())
        )
        assert function(rows).numpy().tobytes() == whole.reshape(-1)[place].tobytes()
