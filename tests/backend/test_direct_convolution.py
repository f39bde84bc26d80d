"""Convolutions by products with patches are the sums of products that they stand for, for all shapes, options and numbers of threads."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import ddpgrad as torch
from ddpgrad import environment

if not environment.numba_enabled():
    pytest.skip("DDPGRAD_NUMBA=0 switches the kernels off", allow_module_level=True)

from numba.core.codegen import get_host_cpu_features

from ddpgrad.backend.cpu import channels as channels_alone
from ddpgrad.backend.cpu import direct, threads
from ddpgrad.backend.cpu.patches import Options

if not direct.AVAILABLE:
    pytest.skip("needs a processor with vectors of 256 bits", allow_module_level=True)

triples = st.tuples(*[st.integers(1, 3)] * 3)


def correlated(x, w, options: Options, size) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """In float64, tap by tap: the result, a gradient of it, and those of x and w."""
    stride, padding, dilation, groups = options
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *[(p, p) for p in padding]])
    spread = np.zeros((len(x), groups, len(w) // groups, *size))
    by_group = w.astype(np.float64).reshape(groups, len(w) // groups, *w.shape[1:])
    views = {}
    for tap in itertools.product(*map(range, w.shape[2:])):
        place = tuple(
            slice(t * d, t * d + s * (n - 1) + 1, s)
            for t, d, s, n in zip(tap, dilation, stride, size, strict=True)
        )
        views[tap] = place
        met = padded[(..., *place)].reshape(len(x), groups, -1, *size)
        spread += np.einsum("ngc...,goc->ngo...", met, by_group[(..., *tap)])
    out = spread.reshape(len(x), len(w), *size)

    g = np.random.default_rng(2).standard_normal(out.shape)
    g_input, g_weight = np.zeros_like(padded), np.zeros_like(by_group)
    g_groups = g.reshape(spread.shape)
    for tap, place in views.items():
        met = padded[(..., *place)].reshape(len(x), groups, -1, *size)
        g_weight[(..., *tap)] = np.einsum("ngcdhw,ngodhw->goc", met, g_groups)
        share = np.einsum("ngo...,goc->ngc...", g_groups, by_group[(..., *tap)])
        g_input[(..., *place)] += share.reshape(*x.shape[:2], *size)
    inside = tuple(slice(p, p + n) for p, n in zip(padding, x.shape[2:], strict=True))
    return out, g, g_input[(..., *inside)], g_weight.reshape(w.shape)


def check(
    way, images: int, groups: int, channels: int, outputs: int, kernel, options, size, rest=(0, 0, 0)
) -> None:
    """By the module `way`, of `channels` and `outputs` in each group; rows beyond the last patch, `rest` of them, are met by none."""
    stride, padding, dilation = options
    options = Options(stride, padding, dilation, groups)
    shape = [
        max(1, s * (n - 1) + d * (k - 1) + 1 - 2 * p + min(r, s - 1))
        for n, k, s, p, d, r in zip(size, kernel, *options[:3], rest, strict=True)
    ]
    size = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(shape, kernel, *options[:3], strict=True)
    ]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((images, groups * channels, *shape), np.float32)
    w = rng.standard_normal((groups * outputs, channels, *kernel), np.float32)
    bias = rng.standard_normal(len(w), np.float32)
    out, g, g_input, g_weight = correlated(x, w, options, size)
    g_float = g.astype(np.float32)
    close(way.convolve(x, w, bias, out.shape, options), out + bias[:, None, None, None])
    close(way.convolve_input(g_float, w, x.shape, options), g_input)
    close(way.convolve_weight(g_float, x, w.shape, options), g_weight)


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6 * max(1.0, float(np.abs(want).max())))


@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 40),
    triples,
    st.tuples(triples, st.tuples(*[st.integers(0, 3)] * 3), triples),
    st.tuples(*[st.integers(1, 6)] * 3),
    st.tuples(*[st.integers(0, 2)] * 3),
)
@example(2, 1, 130, 33, (1, 3, 3), ((1, 2, 2), (0, 1, 1), (1, 1, 1)), (1, 5, 5), (0, 0, 1))  # a long sum
@example(3, 1, 5, 20, (2, 2, 2), ((1, 1, 1), (0, 0, 0), (1, 1, 1)), (11, 12, 13), (0, 0, 0))  # many positions
@example(
    40, 2, 3, 16, (1, 1, 4), ((1, 1, 3), (0, 0, 1), (1, 1, 1)), (1, 1, 9), (0, 0, 0)
)  # images side by side
@example(
    2, 1, 3, 8, (1, 1, 2), ((1, 3, 4), (0, 0, 0), (1, 1, 1)), (1, 4, 4), (0, 2, 2)
)  # places that none meets
def test_any_shape_and_options(images, groups, channels, outputs, kernel, options, size, rest):
    check(direct, images, groups, channels, outputs, kernel, options, size, rest)


@given(
    st.integers(1, 3),
    st.integers(1, 40),
    triples,
    st.tuples(triples, st.tuples(*[st.integers(0, 3)] * 3), triples),
    st.tuples(*[st.integers(1, 6)] * 3),
    st.tuples(*[st.integers(0, 2)] * 3),
)
@example(2, 17, (1, 3, 5), ((1, 1, 2), (0, 1, 2), (1, 1, 1)), (1, 20, 19), (0, 0, 1))  # many positions
@example(1, 9, (1, 1, 3), ((1, 1, 1), (0, 0, 1), (1, 1, 1)), (1, 2, 300), (0, 0, 0))  # long lines
@example(2, 8, (1, 1, 2), ((1, 3, 4), (0, 0, 0), (1, 1, 1)), (1, 4, 4), (0, 2, 2))  # places that none meets
def test_channels_of_their_own(images, groups, kernel, options, size, rest):
    check(channels_alone, images, groups, 1, 1, kernel, options, size, rest)


def test_the_bits_do_not_depend_on_threads_or_on_neighbours(monkeypatch):
    """Threads share images, places of one image, or input channels."""
    rng = np.random.default_rng(0)
    for way, images, groups, stride in (
        (direct, 5, 1, 2),
        (direct, 1, 1, 1),
        (direct, 5, 2, 2),
        (channels_alone, 3, 36, 2),
    ):
        options = Options((1, stride, stride), (0, 1, 1), (1, 1, 1), groups)
        x = rng.standard_normal((images, 36, 1, 14 * stride, 28 * stride), np.float32)
        outputs = 36 if groups == 36 else 40
        w = rng.standard_normal((outputs, 36 // groups, 1, 3, 3), np.float32)
        shape = (images, outputs, 1, 14, 28)
        g = rng.standard_normal(shape, np.float32)

        def run(way=way, x=x, w=w, g=g, shape=shape, options=options):
            return (
                way.convolve(x, w, None, shape, options),
                way.convolve_input(g, w, x.shape, options),
                way.convolve_weight(g, x, w.shape, options),
            )

        alone, before = run(), torch.get_num_threads()
        monkeypatch.setattr(threads, "WORTH_SHARING", 0)
        torch.set_num_threads(3)
        try:
            for a, b in zip(alone, run(), strict=True):
                np.testing.assert_array_equal(a, b)
        finally:
            torch.set_num_threads(before)
            monkeypatch.undo()
        one = way.convolve(x[-1:], w, None, (1, *shape[1:]), options)
        np.testing.assert_array_equal(one[0], alone[0][-1])


def test_shapes_that_do_not_fit_are_refused():
    x, w, g = (np.ones(shape, np.float32) for shape in ((2, 8, 1, 5, 5), (8, 4, 1, 3, 3), (2, 8, 1, 3, 3)))
    options = Options((1, 1, 1), (0, 0, 0), (1, 1, 1), 2)
    for refused in (
        lambda: direct.convolve(x[:, :6], w, None, g.shape, options),
        lambda: direct.convolve_input(g, w, (2, 6, 1, 5, 5), options),
        lambda: direct.convolve_weight(g[:1], x, w.shape, options),
        lambda: direct.convolve_weight(g[:, :4], x, w.shape, options),
        lambda: channels_alone.convolve(x, w[:, :1], None, g.shape, options),
    ):
        with pytest.raises(ValueError, match="does not fit"):
            refused()


def test_unaligned_and_spread_arrays_are_read():
    options = Options((1, 1, 1), (0, 0, 0), (1, 1, 1), 1)
    x = np.random.default_rng(0).standard_normal((4, 2, 1, 3, 6), np.float32)[..., ::2]
    w = np.broadcast_to(np.float32(1), (3, 2, 1, 1, 1))
    unaligned = np.frombuffer(b"x" + x.tobytes(), np.float32, offset=1).reshape(x.shape)
    for array in (x, unaligned):
        out = direct.convolve(array, w, None, (4, 3, 1, 3, 3), options)
        np.testing.assert_allclose(out, np.repeat(x.sum(1, keepdims=True), 3, 1), rtol=1e-5, atol=1e-6)


NARROW = """
import sys
import numpy as np
import ddpgrad as torch
from ddpgrad.backend.cpu import direct, float_product, half_product, patch_product
from ddpgrad.backend.cpu.patches import Options

assert patch_product.ROWS == 4 and not float_product.AVAILABLE and not half_product.AVAILABLE
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    ones = torch.ones(64, 64, dtype=dtype)
    assert (ones @ ones == 64).all()
x, w, g = (np.load(f"{sys.argv[1]}/{name}.npy") for name in "xwg")
options = Options((1, 2, 1), (0, 1, 1), (1, 1, 1), 1)
results = {
    "out": direct.convolve(x, w, None, g.shape, options),
    "g_input": direct.convolve_input(g, w, x.shape, options),
    "g_weight": direct.convolve_weight(g, x, w.shape, options),
}
np.savez(f"{sys.argv[1]}/results.npz", **results)
"""


@pytest.mark.full
def test_narrower_vectors_give_the_same_bits(tmp_path):
    rng = np.random.default_rng(0)
    shapes = {"x": (2, 13, 1, 12, 11), "w": (27, 13, 1, 3, 3), "g": (2, 27, 1, 6, 11)}
    x, w, g = (rng.standard_normal(shape, np.float32) for shape in shapes.values())
    for name, array in zip(shapes, (x, w, g), strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    few = get_host_cpu_features().replace("+avx512", "-avx512").replace("+f16c", "-f16c")
    environ = os.environ | {"NUMBA_CPU_FEATURES": few}
    subprocess.run([sys.executable, "-c", NARROW, str(tmp_path)], env=environ, timeout=600, check=True)
    options = Options((1, 2, 1), (0, 1, 1), (1, 1, 1), 1)
    narrow = np.load(tmp_path / "results.npz")
    np.testing.assert_array_equal(direct.convolve(x, w, None, g.shape, options), narrow["out"])
    np.testing.assert_array_equal(direct.convolve_input(g, w, x.shape, options), narrow["g_input"])
    np.testing.assert_array_equal(direct.convolve_weight(g, x, w.shape, options), narrow["g_weight"])


@given(st.integers(1, 4), triples, st.tuples(triples, st.tuples(*[st.integers(0, 3)] * 3), triples), triples)
@example(3, (3, 2, 3), ((2, 2, 1), (3, 1, 2), (2, 2, 3)), (3, 1, 2))
def test_single_channels_read_within_the_copy_of_an_image(images, kernel, options, size):
    """A tile has eight places. Those of the next image, which is not there, would be memory of others, or of nobody."""
    options = Options(*options, 40)
    shape = [
        s * (n - 1) + d * (k - 1) + 1 - 2 * p
        for n, k, s, p, d in zip(size, kernel, *options[:3], strict=True)
    ]
    assume(min(shape) > 0)
    seen = []

    def spy(x, size, before, padded, pitch, rows, taps, places, parts, *rest):
        for row_at, tap_at, _, _, positions, length in parts:
            read = rows[row_at : row_at + -(-positions // 8) * 8].max() + taps[tap_at : tap_at + length].max()
            seen.append(int(read) < 4 * channels_alone.LANES * pitch)

    g, w = np.ones((images, 40, *size), np.float32), np.ones((40, 1, *kernel), np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channels_alone, "_correlation", lambda: spy)
        channels_alone.convolve_input(g, w, (images, 40, *shape), options)
        channels_alone.convolve(np.ones((images, 40, *shape), np.float32), w, None, g.shape, options)
    assert seen and all(seen)
