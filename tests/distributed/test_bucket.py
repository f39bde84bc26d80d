"""Which gradients share a bucket, and where each lies: properties that hold for every model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpgrad.distributed.ddp.bucket import FIRST_BYTES, Gradient, plan, usual_cap

KINDS = {("float32", "cpu"): 4, ("float64", "cpu"): 8, ("bfloat16", "cuda:0"): 2}


@st.composite
def models(draw: st.DrawFn) -> tuple[list[Gradient], list[int]]:
    """Gradients of some dtypes and devices, and an order in which they arrive."""
    keys = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=20))
    sizes = draw(st.lists(st.integers(0, 3000), min_size=len(keys), max_size=len(keys)))
    gradients = [Gradient(f"p{i}", n, KINDS[k], k) for i, (k, n) in enumerate(zip(keys, sizes, strict=True))]
    return gradients, draw(st.permutations(range(len(keys))))


@given(models(), st.integers(1, 20_000), st.integers(1, 20_000))
def test_every_gradient_has_aligned_memory_of_its_own_kind(model, cap, first):
    gradients, order = model
    layouts = plan(gradients, order, cap, first_bytes=first)
    assert sorted(i for layout in layouts for i in layout.indices) == list(range(len(gradients)))
    for layout in layouts:
        end = 0
        for i, offset in zip(layout.indices, layout.offsets, strict=True):
            assert gradients[i].key == layout.key
            assert offset >= end and offset * gradients[i].itemsize % 64 == 0
            end = offset + gradients[i].size
        assert end <= layout.length < end + 64


@given(models(), st.integers(1, 20_000), st.integers(1, 20_000))
def test_a_bucket_is_closed_by_the_gradient_that_fills_it(model, cap, first):
    gradients, order = model
    layouts = plan(gradients, order, cap, first_bytes=first)
    position = {i: n for n, i in enumerate(order)}
    for key in {g.key for g in gradients}:
        mine = [layout for layout in layouts if layout.key == key]
        # One kind's gradients keep their order, within a bucket and from bucket to bucket.
        assert [i for layout in mine for i in layout.indices] == [i for i in order if gradients[i].key == key]
        for n, layout in enumerate(mine):
            sizes = [gradients[i].size * gradients[i].itemsize for i in layout.indices]
            left = sum(gradients[i].size * gradients[i].itemsize for rest in mine[n:] for i in rest.indices)
            limit = min(cap if n else min(first, cap), max(first, left // 4))
            assert sum(sizes[:-1]) < limit
            assert sum(sizes) >= limit or n == len(mine) - 1
    # A bucket waits for its last gradient only: full ones go in the order of their last gradients.
    full = [
        layout
        for layout in layouts
        if any(other.key == layout.key for other in layouts[layouts.index(layout) + 1 :])
    ]
    ends = [position[layout.indices[-1]] for layout in full]
    assert ends == sorted(ends)


def test_the_first_bucket_is_small_so_that_communication_begins_early():
    gradients = [Gradient(f"p{i}", 100_000, 4, "float32") for i in range(30)]
    sizes = [len(layout.indices) for layout in plan(gradients, range(30), 10 * FIRST_BYTES)]
    assert sizes[0] == 3


def test_the_last_buckets_shrink_since_little_of_backward_is_left_to_hide_them():
    gradients = [Gradient(f"p{i}", FIRST_BYTES // 4, 4, "float32") for i in range(40)]
    sizes = [len(layout.indices) for layout in plan(gradients, range(40), 10 * FIRST_BYTES)]
    assert sizes[:5] == [1, 10, 8, 6, 4] and sizes[-3:] == [1, 1, 1]


@pytest.mark.parametrize(("total", "cap"), [(100, 1 << 20), (160 << 20, 5 << 20), (4 << 30, 25 << 20)])
def test_a_model_has_32_buckets_unless_they_would_be_very_small_or_large(total, cap):
    assert usual_cap(total) == cap


def test_an_order_that_names_a_gradient_twice_is_refused():
    gradients = [Gradient(f"p{i}", 10, 4, "float32") for i in range(3)]
    with pytest.raises(ValueError, match="a gradient once"):
        plan(gradients, [0, 1, 1], 100)


def test_a_list_of_caps_is_the_size_of_each_bucket_in_turn():
    gradients = [Gradient(str(i), 100, 4, "f") for i in range(12)]
    layouts = plan(gradients, range(12)[::-1], 10**6, [400, 900, 1200])
    assert [len(layout.indices) for layout in layouts] == [1, 3, 3, 3, 2]
    assert [i for layout in layouts for i in layout.indices] == list(range(12))[::-1]
