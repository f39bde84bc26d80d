"""The summing order does not depend on how the work is divided, and rounds as documented."""

from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from collective_contract import contribution, tree_reference
from hypothesis import given
from hypothesis import strategies as st

from ddpgrad.distributed.protocol import tree


@given(
    st.integers(1, 9),
    st.integers(0, 300),
    st.integers(1, 7),
    st.sampled_from(["sum", "avg", "product", "max"]),
    st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16, np.float64]),
    st.booleans(),
    st.booleans(),
)
def test_any_division_gives_the_same_bits(ranks, length, parts, op, dtype, in_place, compiled):
    with pytest.MonkeyPatch.context() as patch:
        _compile(patch, compiled)
        _divided(ranks, length, parts, op, dtype, in_place)


def _compile(patch, compiled):
    """Let sums of any length be made by compiled code, or none."""
    patch.setattr(
        tree,
        "_COMPILED_FROM",
        {**dict.fromkeys(tree._COMPILED_FROM, 1 if compiled else 1 << 60), "none": 1 << 60},
    )
    patch.setattr(tree, "_LOAD_AFTER", 0)


def _divided(ranks, length, parts, op, dtype, in_place):
    inputs = [contribution(rank, length, dtype, 3).copy() for rank in range(ranks)]
    expected = tree_reference(inputs, op)
    outputs = inputs if in_place else [np.zeros(length, dtype) for _ in range(2)]
    kept = [array.copy() for array in inputs]
    for part in range(parts):
        low, high = tree.share(length, parts, part)
        tree.reduce_into([array[low:high] for array in outputs], [array[low:high] for array in inputs], op)
    for output in outputs:
        assert output.tobytes() == expected.tobytes()
    if not in_place:
        assert all(array.tobytes() == copy.tobytes() for array, copy in zip(inputs, kept, strict=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_compiled_sums_have_the_bits_of_numpy(monkeypatch, dtype, ranks):
    """Infinities, NaN, what overflows, zeros of both signs, numbers below the normal ones, and ties."""
    bits = np.arange(1 << 16, dtype=np.uint16) if np.dtype(dtype).itemsize == 2 else None
    tiny = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, 3e38, 1, 1e-8]).astype(dtype)
    every = tiny if bits is None else bits.view(dtype)
    inputs = [np.resize(np.roll(every, 7919 * rank), 1 << 20) for rank in range(ranks)]
    expected = [array.copy() for array in inputs]
    for op in ("sum", "avg"):
        _compile(monkeypatch, False)
        tree.reduce_into(expected, expected, op)
        _compile(monkeypatch, True)
        tree.reduce_into(inputs, inputs, op, from_end=op == "avg")
        for got, wanted in zip(inputs, expected, strict=True):
            assert got.tobytes() == wanted.tobytes()


@given(st.integers(0, 100_000), st.integers(1, 100))
def test_shares_cover_everything_once(length, parts):
    shares = [tree.share(length, parts, part) for part in range(parts)]
    assert shares[0][0] == 0
    assert shares[-1][1] == length
    assert all(stop == start for (_, stop), (start, _) in pairwise(shares))
    assert all(start <= stop and (start % 64 == 0 or start == length) for start, stop in shares)


@pytest.mark.parametrize("aliased", range(5))
def test_an_output_may_be_any_input(aliased):
    inputs = [contribution(rank, 200_000, np.float32, 4).copy() for rank in range(5)]
    expected = tree_reference(inputs, "sum")
    tree.reduce_into([inputs[aliased]], inputs, "sum")
    assert inputs[aliased].tobytes() == expected.tobytes()


def test_half_precision_is_rounded_once():
    # 2048 + 1 is no float16; four times 1 must not vanish one by one.
    inputs = [np.array([2048], np.float16)] + [np.array([1], np.float16)] * 4
    tree.reduce_into(outputs := [np.empty(1, np.float16)], inputs, "sum")
    assert outputs[0][0] == 2052
    tree.reduce_into(outputs, [np.array([60000], np.float16)] * 4, "avg")
    assert outputs[0][0] == 60000
