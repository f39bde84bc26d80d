"""The streams of random numbers: PyTorch's, one per rank, and exact to save and restore."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddpgrad
from ddpgrad.core import rank_local
from ddpgrad.core.environment import numba_enabled
from ddpgrad.random import Generator, fork_rng, get_rng_state, rank_generator, set_rng_state
from ddpgrad.random.variates import largest

SHAPES = [(), (1,), (7,), (15,), (16,), (17,), (33,), (40,), (64, 5)]


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def both(torch, seed=123):
    """A generator here and one in PyTorch, with the same seed."""
    return Generator().manual_seed(seed), torch.Generator().manual_seed(seed)


@pytest.mark.torch
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_uniform_and_normal_are_pytorchs(torch, shape, dtype):
    ours, theirs = both(torch)
    kind = getattr(torch, dtype)
    for _ in range(3):  # small shapes leave half a pair of normal numbers for the next draw
        u = ours.uniform(shape, getattr(ddpgrad, dtype))
        expected = torch.rand(shape, dtype=kind, generator=theirs)
        assert u.shape == shape
        np.testing.assert_array_equal(u.astype(np.float64), expected.double().numpy())
        n = ours.normal(shape, getattr(ddpgrad, dtype))
        expected = torch.randn(shape, dtype=kind, generator=theirs)
        np.testing.assert_array_equal(n.astype(np.float64), expected.double().numpy())


def test_the_compiled_transforms_are_loaded_after_many_small_draws_and_draw_the_same():
    code = """
import sys, ddpgrad as torch
g = torch.Generator()
def draw(): return [torch.randn(16, generator=g.manual_seed(3)).tolist(), torch.randn(20, dtype=torch.float64, generator=g).tolist(), torch.randn(3, generator=g).tolist()]
first, before = draw(), "numba" in sys.modules
for _ in range(1000): last = draw()
print(before, "numba" in sys.modules, first == last)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert run.stdout.split() == ["False", str(numba_enabled()), "True"]


@pytest.mark.torch
@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.1), (3.0, 3.0000021), (1e6, 1e6 + 1), (2.0, 2.0)])
def test_bounds_are_rounded_as_in_pytorch(torch, low, high):
    ours, theirs = both(torch)
    expected = torch.empty(5000).uniform_(low, high, generator=theirs).numpy()
    np.testing.assert_array_equal(ours.uniform(5000, np.float32, low, high), expected)
    half = torch.empty(5000, dtype=torch.bfloat16).uniform_(-0.3, 0.7, generator=theirs).float().numpy()
    np.testing.assert_array_equal(ours.uniform(5000, ddpgrad.bfloat16, -0.3, 0.7).astype(np.float32), half)


@pytest.mark.torch
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64"])
def test_normal_numbers_have_pytorchs_bits(torch, dtype, compiled, monkeypatch):
    """In blocks and singly, of any mean and deviation, and in memory of any layout; by compiled code and without it."""
    if not compiled:
        monkeypatch.setattr("ddpgrad.backend.normals._compiled", lambda count: None)
    else:
        monkeypatch.setattr("ddpgrad.backend.cpu.kernel_cache._WORTH_COMPILING", 0)
    for name in ("_MANY", "_FEW_CALLS"):
        monkeypatch.setattr(f"ddpgrad.random.generator.{name}", 0 if compiled else 1 << 40)
    monkeypatch.setattr("ddpgrad.random.generator._Compiled.module", None)
    makers = [
        lambda t, kind: t.empty(1, dtype=kind), lambda t, kind: t.empty(15, dtype=kind),
        lambda t, kind: t.empty(16, dtype=kind), lambda t, kind: t.empty(47, dtype=kind),
        lambda t, kind: t.empty(3, 700, dtype=kind), lambda t, kind: t.empty(9, 8, dtype=kind).t(),
        lambda t, kind: t.empty(9, 8, dtype=kind)[:, ::2], lambda t, kind: t.empty(4, 5, 6, dtype=kind).permute(2, 0, 1),
    ]  # fmt: skip
    for seed in range(40):
        for mean, std in ((0.0, 1.0), (0.0, 0.02), (0.3, 0.7)):
            for library in (ddpgrad, torch):
                library.manual_seed(seed)
            for make in makers:
                ours = make(ddpgrad, getattr(ddpgrad, dtype)).normal_(mean, std)
                theirs = make(torch, getattr(torch, dtype)).normal_(mean, std)
                same = ours.to(ddpgrad.complex128).numpy() == theirs.to(torch.complex128).numpy()
                assert same.all(), (seed, mean, std, tuple(ours.shape))


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("uniform_", (1, 3)), ("exponential_", ()), ("cauchy_", ()), ("geometric_", (0.3,)), ("bernoulli_", (0.4,)),
        ("random_", (0, 100)), ("log_normal_", ()),
    ],
)  # fmt: skip
def test_draws_follow_memory(torch, name, arguments):
    for library in (ddpgrad, torch):
        library.manual_seed(1)
    ours, theirs = (t.empty(3, 4, 5).permute(2, 0, 1)[1:] for t in (ddpgrad, torch))
    np.testing.assert_array_equal(getattr(ours, name)(*arguments), getattr(theirs, name)(*arguments).numpy())


@pytest.mark.torch
@pytest.mark.parametrize(
    ("low", "high"), [(0, 10), (-5, 5), (0, 2**28 - 1), (0, 2**28), (-3, 2**32), (-(2**63), 2**63 - 1)]
)
def test_integers_are_pytorchs(torch, low, high):
    ours, theirs = both(torch)
    expected = torch.randint(low, high, (50,), generator=theirs).numpy()
    np.testing.assert_array_equal(ours.integers(low, high, 50), expected)


@pytest.mark.torch
@pytest.mark.parametrize("n", [0, 1, 2, 100, 20_000, 70_000])
def test_permutations_are_pytorchs(torch, n):
    ours, theirs = both(torch)
    np.testing.assert_array_equal(ours.permutation(n), torch.randperm(n, generator=theirs).numpy())
    assert ours.raw64() % 2**63 == torch.empty((), dtype=torch.int64).random_(generator=theirs).item()


@pytest.mark.torch
@pytest.mark.parametrize(("count", "replacement"), [(1, True), (9, True), (4, False)])
@pytest.mark.parametrize("rows", [(), (3,)])
def test_multinomial_and_bernoulli_are_pytorchs(torch, count, replacement, rows):
    ours, theirs = both(torch)
    weights = Generator().uniform((*rows, 6), np.float64)
    expected = torch.multinomial(torch.from_numpy(weights), count, replacement, generator=theirs)
    np.testing.assert_array_equal(ours.multinomial(weights, count, replacement), expected.numpy())
    chances = weights.astype(np.float32)
    expected = torch.bernoulli(torch.from_numpy(chances), generator=theirs)
    np.testing.assert_array_equal(ours.bernoulli(chances), expected.numpy())
    expected = torch.empty(20).bernoulli_(0.3, generator=theirs)
    np.testing.assert_array_equal(ours.bernoulli(0.3, 20), expected.numpy())


@pytest.mark.parametrize("name", ["float32", "float64", "integers", "bernoulli"])
@settings(max_examples=10)
@given(before=st.integers(0, 1300), count=st.integers(33_000, 40_000))
def test_many_draws_at_once_are_those_of_few(name, before, count):
    def drawn(sizes):
        generator = Generator().manual_seed(3)
        generator.uniform(before)
        draw = {
            "integers": lambda n: generator.integers(0, 1000, n),
            "bernoulli": lambda n: generator.bernoulli(0.3, n),
        }.get(name, lambda n: generator.uniform(n, name))
        return np.concatenate([draw(n) for n in sizes]), generator.get_state().numpy()

    few = [1000] * (count // 1000) + [count % 1000]
    for at_once, in_parts in zip(drawn([count]), drawn(few), strict=True):
        np.testing.assert_array_equal(at_once, in_parts)


def test_threads_draw_from_one_stream_in_turn():
    generator, count = Generator().manual_seed(0), 60_000
    with ThreadPoolExecutor(6) as threads:
        drawn = list(threads.map(lambda _: generator.uniform(count), range(6)))
    whole = Generator().manual_seed(0).uniform(6 * count).reshape(6, count)
    np.testing.assert_array_equal(np.sort(drawn, axis=0), np.sort(whole, axis=0))


def test_every_rank_has_its_own_default_stream():
    with fork_rng():
        ddpgrad.manual_seed(3)
        alone = rank_generator().uniform(4)
        ddpgrad.manual_seed(3)
        try:
            rank_local.bind("another rank")
            rank_generator().uniform(4)
        finally:
            rank_local.bind(None)
        np.testing.assert_array_equal(rank_generator().uniform(4), alone)


def test_a_cloned_generator_continues_alike():
    generator = Generator().manual_seed(5)
    generator.normal(3)
    other = generator.clone_state()
    np.testing.assert_array_equal(generator.normal(20), other.normal(20))


def test_fork_rng_leaves_the_stream_where_it_was():
    before = get_rng_state()
    with fork_rng():
        rank_generator().normal(5)
    np.testing.assert_array_equal(get_rng_state().numpy(), before.numpy())
    set_rng_state(before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.manual_seed(2**64), "seed lies in"),
        (lambda g: g.integers(3, 3, 2), "low < high"),
        (lambda g: g.normal(2, std=-1.0), "std >= 0"),
        (lambda g: g.uniform(2, low=2.0, high=1.0), "from=.* > to="),
        (lambda g: g.uniform(2, np.int64), "floating-point"),
        (lambda g: g.multinomial(np.ones(3), 4), "without replacement"),
        (lambda g: g.multinomial(np.array([1.0, np.nan]), 1), "`inf`, `nan` or element < 0"),
        (lambda g: g.set_state(np.zeros(10, np.uint8)), "5056"),
        (lambda g: g.set_state(np.zeros(5056, np.uint8)), "inconsistent"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises((RuntimeError, ValueError), match=message):
        call(Generator())


def test_whole_numbers_within_bounds():
    def drawn(dtype, *bounds, **named):
        ddpgrad.manual_seed(0)
        return ddpgrad.zeros(4, dtype=dtype).random_(*bounds, **named).tolist()

    assert drawn(ddpgrad.int8, 3, None) == [47, 117, 61, 13], "PyTorch's, up to the largest int8"
    assert drawn(ddpgrad.float32, -3, None) == [8325241.0, 12888016.0, 1483670.0, 2214237.0]
    assert drawn(ddpgrad.int64, **{"from": -300, "to": 3}) == drawn(ddpgrad.float64, -300, 3)
    with pytest.warns(UserWarning, match="out of bounds"):
        assert drawn(ddpgrad.bfloat16, 0, 300) == [148.0, 53.0, 69.0, 258.0]
    for dtype, *bounds in (
        (ddpgrad.uint8, 0, 300), (ddpgrad.uint8, -3, None), (ddpgrad.bool, 3), (ddpgrad.int32, 2**40),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"(from|to - 1) is out of bounds for"):
            drawn(dtype, *bounds)
    with pytest.raises(RuntimeError, match="out of bounds for uint8"):
        ddpgrad.randint(0, 300, (3,), dtype=ddpgrad.uint8)
    with pytest.raises(TypeError):
        drawn(ddpgrad.int64, None)


def test_draws_refuse_what_a_dtype_cannot_hold():
    with pytest.raises(RuntimeError, match="can hold"):
        ddpgrad.empty(3).uniform_(-3e38, 3e38)
    for call in (
        lambda: ddpgrad.empty(3, dtype=ddpgrad.complex64).bernoulli_(),
        lambda: ddpgrad.empty(3).bernoulli_(ddpgrad.tensor([1, 0, 1])),
    ):
        with pytest.raises(NotImplementedError, match="bernoulli_"):
            call()


@pytest.mark.torch
def test_integers_of_all_64_bits_are_pytorchs(torch):
    ours, theirs = both(torch)
    got = ddpgrad.empty(5, dtype=ddpgrad.int64).random_(-(2**63), None, generator=ours)
    assert (
        got.tolist() == torch.empty(5, dtype=torch.int64).random_(-(2**63), None, generator=theirs).tolist()
    )


@settings(max_examples=30)
@given(st.integers(1000, 1200), st.integers(1, 160), st.integers(1, 3), st.integers(0, 1 << 30))
def test_few_of_many_are_chosen_as_in_a_whole_order(n: int, count: int, rows: int, seed: int) -> None:
    scores = np.random.default_rng(seed).integers(0, 60, (rows, n)).astype(np.float32)
    expected = np.argsort(-scores, axis=-1, kind="stable")[..., :count]
    np.testing.assert_array_equal(largest(scores, count), expected)
