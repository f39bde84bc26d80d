"""Edges of layers and functions: padding in encoders, norms at infinity, targets of other dtypes."""

import math
from typing import Any

import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.nn.attention.bias import causal_lower_right, causal_upper_left


@pytest.mark.parametrize("norm", [None, nn.LayerNorm(4)])
def test_an_encoder_leaves_padding_out_where_nothing_is_recorded(norm):
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, norm).eval()
    x, padding = torch.randn(2, 3, 4), torch.tensor([[False, False, True], [False, True, True]])
    recorded = encoder(x, src_key_padding_mask=padding)
    with torch.no_grad():
        found = encoder(x, src_key_padding_mask=padding)
        unordered = encoder(x, src_key_padding_mask=padding.flip(1))
    assert torch.equal(found[padding], torch.zeros(3, 4)) and not unordered[padding.flip(1)].eq(0).any()
    torch.testing.assert_close(found[~padding], recorded[~padding].detach())
    assert not recorded[padding].eq(0).any()


def test_edges_of_small_functions():
    x = torch.tensor([[[-3.0, 1.0, 2.0, -1.0]]])
    assert F.lp_pool1d(x, float("inf"), 2).tolist() == [[[3.0, 2.0]]]
    assert F.lp_pool1d(x, -float("inf"), 2).tolist() == [[[1.0, 1.0]]]
    target = torch.tensor([True, False])
    for loss in (F.mse_loss, F.smooth_l1_loss, F.huber_loss):
        assert loss(torch.tensor([1.0, 0.0]), target) == 0
    with pytest.raises(RuntimeError, match="can't be cast"):
        F.dropout(torch.ones(2, dtype=torch.int64), 0.5)
    y = torch.ones(2, 3)
    assert F.dropout1d(y, 1.0, inplace=True) is y and y.sum() == 0
    assert nn.init.calculate_gain("conv_transpose2d") == 1


def test_the_total_norm_has_the_widest_dtype():
    narrow, wide = nn.Parameter(torch.ones(2, dtype=torch.bfloat16)), nn.Parameter(torch.ones(1))
    narrow.grad, wide.grad = torch.full_like(narrow, 3.0), torch.full((1,), 4.125)
    total = nn.utils.clip_grad_norm_([narrow, wide], 100.0)
    assert total.dtype is torch.float32 and total.item() == pytest.approx((9 + 9 + 4.125**2) ** 0.5)


def test_a_parameter_that_is_assigned_becomes_the_modules_own():
    source, target = nn.Linear(2, 2), nn.Linear(2, 2, device="meta").requires_grad_(False)
    target.load_state_dict(source.state_dict(keep_vars=True), assign=True)
    assert target.weight is source.weight and not source.weight.requires_grad
    with torch.no_grad():
        loaded = nn.Linear(2, 2, device="meta")
        loaded.load_state_dict(source.state_dict(), assign=True)
    assert loaded.weight is not source.weight and loaded.weight.data_ptr() == source.weight.data_ptr()


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_takes_no_integers(training):
    with pytest.raises(NotImplementedError, match="'Long'"):
        F.batch_norm(torch.ones(3, 2, dtype=torch.int64), torch.zeros(2), torch.ones(2), training=training)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_a_linear_map_of_one_row_loses_the_last_dimension(lead, dtype):
    x = torch.arange(2.0 * math.prod(lead)).reshape(*lead, 2).to(dtype).requires_grad_()
    weight = torch.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
    bias = torch.tensor(3.0, dtype=dtype, requires_grad=True)
    out = F.linear(x, weight, bias)
    assert out.shape == lead and out.tolist() == (x[..., 0] + 2 * x[..., 1] + 3).tolist()
    assert F.linear(x, weight).tolist() == (out - 3).tolist()
    out.sum().backward()
    assert x.grad.tolist() == weight.expand(*lead, 2).tolist() and bias.grad.item() == out.numel()
    assert weight.grad.tolist() == x.reshape(-1, 2).sum(0).tolist()


@pytest.mark.parametrize(
    ("x", "weight", "bias"),
    [((3, 2), (3,), None), ((3, 2), (2,), (3,)), ((3, 2), (1, 2, 2), None), ((), (2,), None)],
)
def test_a_linear_map_of_other_shapes_is_refused(x, weight, bias):
    with pytest.raises(RuntimeError, match="linear"):
        F.linear(torch.zeros(x), torch.zeros(weight), None if bias is None else torch.zeros(bias))


@pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM, nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_states_of_a_recurrence_have_the_dtype_of_the_input(make: Any) -> None:
    state = torch.zeros((2, 4) if make.__name__.endswith("Cell") else (1, 2, 4), dtype=torch.float64)
    input = torch.ones((2, 3) if state.ndim == 2 else (1, 2, 3))
    with pytest.raises(RuntimeError, match="float64"):
        make(3, 4)(input, (state, state) if "LSTM" in make.__name__ else state)


def test_losses_of_one_sample_and_of_sequences_without_steps() -> None:
    scores = torch.tensor([1.0, 2.0, 3.0]).log_softmax(0)
    assert torch.equal(F.nll_loss(scores, torch.tensor([1]), reduction="none"), -scores[1])
    for target in (torch.tensor([0, 1]), torch.tensor([[0, 1, 2]])):
        with pytest.raises(ValueError, match="batch_size"):
            F.cross_entropy(torch.ones(3, 4), target)
    steps = torch.zeros(2, 1, 3).log_softmax(2).requires_grad_()
    F.ctc_loss(steps, torch.ones(1, 1).long(), (0,), (1,), reduction="none").sum().backward()
    assert steps.grad is not None and not steps.grad.any()


def test_interpolation_by_lanczos_and_its_arguments() -> None:
    image = torch.zeros(1, 1, 8, 8)
    image[..., 4, :] = 1.0
    smaller = F.interpolate(image, (4, 8), mode="lanczos", antialias=True)

    def kernel(x: float) -> float:
        return 1.0 if x == 0 else math.sin(math.pi * x) * math.sin(math.pi * x / 3) * 3 / (math.pi * x) ** 2

    # Output 2 is centred at 5, and reaches six elements of the input to both sides.
    weights = [kernel((place + 0.5 - 5) / 2) for place in range(8)]
    torch.testing.assert_close(smaller[0, 0, 2], torch.full((8,), weights[4] / sum(weights)))
    for options in ({}, {"antialias": True, "align_corners": True}):
        with pytest.raises(ValueError, match="Lanczos mode"):
            F.interpolate(image, 4, mode="lanczos", **options)
    for size in (2.5, "4"):
        with pytest.raises(TypeError):
            F.interpolate(image, size)
    assert F.interpolate(image, 0, mode="area").shape == (1, 1, 0, 0)
    with pytest.raises(RuntimeError, match="2 matrices for 1 images"):
        F.affine_grid(torch.ones(2, 2, 3), [1, 1, 2, 2])


@pytest.mark.parametrize("make", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_leaves_its_input(make: Any) -> None:
    x = torch.ones(2, 3, 4, requires_grad=True)
    assert make(0.5, inplace=True)(x) is not x and bool((x == 1).all())


def test_causal_masks_begin_in_either_corner() -> None:
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)
    for make, diagonal in ((causal_upper_left, 0), (causal_lower_right, 2)):
        bias = make(3, 5)
        assert (
            isinstance(bias, torch.Tensor)
            and bias.shape == (3, 5)
            and (bias.seq_len_q, bias.seq_len_kv) == (3, 5)
        )
        found = F.scaled_dot_product_attention(q, k, k, bias)
        assert type(found) is torch.Tensor
        mask = torch.ones(3, 5, dtype=torch.bool).tril(diagonal)
        assert torch.equal(found, F.scaled_dot_product_attention(q, k, k, mask))
        with pytest.raises(ValueError, match="causal=True"):
            F.scaled_dot_product_attention(q, k, k, bias, is_causal=True)
    with pytest.warns(UserWarning, match="NaNs"):
        causal_lower_right(5, 3)


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("mode", "padding", "expected"),
    [
        ("bilinear", "zeros", [NAN, NAN]),
        ("bilinear", "border", [2.0, 3.0]),  # NaN counts as the first place
        ("bilinear", "reflection", [2.0, 2.0]),
        ("nearest", "zeros", [0.0, 0.0]),
        ("bicubic", "border", [NAN, NAN]),
    ],
)
def test_a_place_that_is_no_number_is_sampled_as_in_pytorch(mode: str, padding: str, expected: Any) -> None:
    x, grid = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), torch.tensor([[[[NAN, 0.0], [INF, 0.0]]]])
    if mode == "nearest":
        grid[..., 1] = -0.5
    out = F.grid_sample(x, grid, mode, padding, align_corners=False).flatten()
    assert out.tolist() == pytest.approx(expected, nan_ok=True)


def test_the_shuffles_keep_the_order_of_memory() -> None:
    x = torch.rand(2, 8, 2, 3).to(memory_format=torch.channels_last)
    for out in (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 1), F.channel_shuffle(x, 4)):
        assert out.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(F.pixel_shuffle(x, 2), F.pixel_shuffle(x.contiguous(), 2))


def test_counts_of_batches_that_are_not_in_a_state_get_memory() -> None:
    norm = nn.BatchNorm1d(2, device="meta")
    norm.load_state_dict({}, strict=False, assign=True)
    assert norm.num_batches_tracked is not None and norm.num_batches_tracked.tolist() == 0


def test_a_loss_over_no_classes_is_no_number_and_a_probability_of_none_has_an_endless_slope() -> None:
    assert F.cross_entropy(torch.rand(5, 0), torch.rand(5, 0)).isnan()
    target = torch.tensor([0.0, 1.0], requires_grad=True)
    F.kl_div(torch.zeros(2), target, reduction="sum").backward()
    assert target.grad is not None and target.grad.isfinite().tolist() == [False, True]


def test_unit_sizes_of_a_grid_with_corners_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="affine_grid behavior has changed for unit-size grids"):
        F.affine_grid(torch.rand(1, 2, 3), (1, 1, 2, 1), align_corners=True)
    with pytest.warns(UserWarning, match="reduction='mean' instead"):
        assert F.mse_loss(torch.ones(2), torch.zeros(2), reduction="elementwise_mean") == 1


def test_attention_over_no_features_and_pools_to_nothing() -> None:
    nothing, value = torch.ones(2, 0), torch.tensor([[1.0], [3.0]])
    assert F.scaled_dot_product_attention(nothing, nothing, value).tolist() == [[2.0], [2.0]]
    assert F.adaptive_avg_pool2d(torch.ones(2, 0, 4, 4), 2).shape == (2, 0, 2, 2)
    found, places = F.adaptive_max_pool2d(torch.ones(2, 3, 4, 4), (0, 2), return_indices=True)
    assert found.shape == places.shape == (2, 3, 0, 2) and places.dtype is torch.int64


def test_what_is_put_around_an_image_may_be_said_otherwise() -> None:
    conv = nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular", bias=False)
    assert conv._reversed_padding_repeated_twice == (1, 1, 1, 1)
    conv._reversed_padding_repeated_twice = (1, 1, 0, 0)
    assert conv(torch.ones(1, 1, 4, 4)).shape == (1, 1, 2, 4)


ONES = torch.ones
NOTHING: Any = None
NUMBERS: Any = [1]
REFUSED = [
    (lambda: F.mse_loss(ONES(2), ONES(2) * 1j), NotImplementedError, "'ComplexFloat'"),
    (lambda: F.mse_loss(ONES(2).long(), ONES(2).long(), reduction="none"), NotImplementedError, "'Long'"),
    (lambda: F.pad(ONES(3, 0, 5), (1, 1), "reflect"), RuntimeError, "2D or 3D"),
    (lambda: F.pad(ONES(3, 0, 5, 5), (1, 1, 1, 1), "replicate"), RuntimeError, "3D or 4D"),
    (lambda: F.unfold(ONES(1, 0, 5, 5), 2), RuntimeError, "3D or 4D"),
    (lambda: F.interpolate(ONES(1, 0, 5, 5), 2), RuntimeError, "Non-empty 4D"),
    (lambda: F.one_hot(torch.tensor([1]), -2), RuntimeError, "-1 or positive"),
    (lambda: nn.RNN(2, 3, proj_size=1), ValueError, "proj_size argument is only supported for LSTM"),
    (lambda: nn.Unflatten(1, (2, 5.0)), TypeError, "float at pos 1"),
    (lambda: nn.Unflatten(1, 2), TypeError, "must be a tuple of ints"),
    (lambda: F.conv2d(ONES(1, 2, 4, 4), ONES(0, 2, 3, 3)), RuntimeError, "at least 1"),
    (lambda: F.conv2d(ONES(1, 2, 4, 4), ONES(3, 2, 3, 0)), RuntimeError, "greater than zero"),
    (lambda: F.conv_transpose2d(ONES(1, 2, 4, 4), ONES(2, 3, 3, 0)), RuntimeError, "greater than zero"),
    (
        lambda: F.conv2d(ONES(1, 2, 4, 0), ONES(3, 2, 3, 3), padding=2),
        RuntimeError,
        "zero batch or zero channel",
    ),
    (lambda: nn.MultiheadAttention(4, 2)(ONES(3, 2, 4), *[ONES(2, 1, 4)] * 2), RuntimeError, "a batch of 2"),
    (
        lambda: F.conv2d(NOTHING, ONES(1, 1, 1, 1)),
        TypeError,
        r"'input' \(position 1\) must be Tensor, not NoneType",
    ),
    (
        lambda: F.cross_entropy(ONES(1, 2), target=NUMBERS),
        TypeError,
        r"'target' \(position 2\) must be Tensor, not list",
    ),
    (
        lambda: F.fractional_max_pool2d(ONES(1, 2, 7, 7), 2, 3, _random_samples=ONES(1, 3, 2)),
        RuntimeError,
        "random samples",
    ),
    (lambda: torch.is_nonzero(NOTHING), TypeError, "must be Tensor"),
    (lambda: F.ctc_loss(ONES(0, 0, 4), ONES(0, 1).long(), (), ()), RuntimeError, "must not be empty"),
]


@pytest.mark.parametrize(("act", "error", "message"), REFUSED)
def test_what_is_refused(act: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        act()


@pytest.mark.parametrize(
    "shape", [(5, 7), (1, 7), (5, 1), (3, 1, 7), (2, 1, 5, 7), (2, 1, 1, 7), (2, 3, 5, 7)]
)
@pytest.mark.parametrize("added", [True, False])
def test_masked_attention_is_what_its_formula_says(shape: tuple[int, ...], added: bool):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, 4, requires_grad=True) for n in (5, 7, 7))
    sees = torch.rand(shape) > 0.4
    mask = torch.randn(shape).masked_fill(~sees, -torch.inf) if added else sees
    scores = q @ k.transpose(-2, -1) / 2
    scores = scores + mask if added else scores.masked_fill(~sees, -torch.inf)
    blind = (scores == -torch.inf).all(-1, keepdim=True)  # a query that sees nothing gets 0
    expected = scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0) @ v
    found = F.scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(found, expected)
    g = torch.randn_like(found)
    grads = [torch.autograd.grad(out, (q, k, v), g) for out in (found, expected)]
    torch.testing.assert_close(*grads)


def test_the_gradient_of_one_row_of_an_embedding_can_be_differentiated():
    table = torch.ones(4, 2, requires_grad=True)
    seed = torch.ones(2, requires_grad=True)
    (slope,) = torch.autograd.grad(F.embedding(torch.tensor(3), table), table, seed, create_graph=True)
    assert torch.autograd.grad(slope.sum(), seed)[0].tolist() == [1.0, 1.0]


def test_sums_of_bags_are_those_of_their_rows_however_the_bags_are_given() -> None:
    table = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(3, 5, dtype=torch.float64, requires_grad=True)
    indices = torch.randint(0, 6, (3, 5))
    counts = (indices != 2)[..., None]
    rows = (F.embedding(indices, table) * weights[..., None] * counts).sum(1)
    flat = (indices.reshape(-1).int(), table, torch.tensor([0, 5, 10]))
    found = F.embedding_bag(*flat, mode="sum", per_sample_weights=weights.reshape(-1), padding_idx=2)
    torch.testing.assert_close(found, rows)
    torch.testing.assert_close(
        F.embedding_bag(indices, table, mode="sum", per_sample_weights=weights, padding_idx=2), rows
    )
    g = torch.randn_like(rows)
    assert torch.allclose(*(torch.autograd.grad(out, weights, g)[0] for out in (found, rows)))
    mean = F.embedding_bag(indices, table, padding_idx=2)
    torch.testing.assert_close(
        mean, (F.embedding(indices, table) * counts).sum(1) / counts.sum(1).clamp(min=1)
    )
    assert torch.autograd.gradgradcheck(
        lambda t, w: F.embedding_bag(indices, t, mode="sum", per_sample_weights=w), (table, weights)
    )
    changed = F.embedding_bag(indices, table).sum()
    indices.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        changed.backward()
