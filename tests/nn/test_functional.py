"""What `nn.functional` refuses, and what only ddpgrad promises; values are compared in tests/parity."""

import inspect
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.nn.utils import prune

ONES = torch.ones
IMAGES = ONES(2, 5, 4, 4)


def attend(mask: torch.Tensor, dropout_p: float = 0.0) -> torch.Tensor:
    return F.scaled_dot_product_attention(ONES(1, 4, 3), ONES(1, 4, 3), ONES(1, 4, 3), mask, dropout_p)


ERRORS: list[tuple[Any, type[Exception], str]] = [
    (
        lambda: F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 7])),
        IndexError,
        "Target 7 is out of bounds",
    ),
    (lambda: F.nll_loss(torch.ones(2, 3), torch.tensor([0, -1])), IndexError, "Target -1 is out of bounds"),
    (
        lambda: F.nll_loss(torch.ones(2, 3), torch.tensor([0])),
        ValueError,
        r"batch_size \(2\) to match target batch_size \(1\)",
    ),
    (
        lambda: F.mse_loss(torch.ones(1), torch.ones(1), reduction="avg"),
        ValueError,
        "avg is not a valid value.*none, mean, sum",
    ),
    (lambda: F.binary_cross_entropy(torch.ones(2) * 2, torch.ones(2)), RuntimeError, "between 0 and 1"),
    (lambda: F.layer_norm(torch.ones(2, 3), (4,)), RuntimeError, r"expected input with shape \[\*, 4\]"),
    (lambda: nn.BatchNorm2d(3)(torch.ones(2, 3)), ValueError, "expected 4D input"),
    (lambda: nn.BatchNorm1d(3)(torch.ones(1, 3)), ValueError, "more than 1 value per channel"),
    (lambda: F.softmax(torch.ones(2, 2), 2), IndexError, "Dimension out of range"),
    (lambda: nn.Conv2d(3, 4, 3, groups=2), ValueError, "divisible by groups"),
    (lambda: nn.Conv2d(3, 4, 3)(torch.ones(1, 2, 5, 5)), RuntimeError, "to have 3 channels, but got 2"),
    (lambda: nn.Linear(3, 4)(torch.ones(2, 5)), RuntimeError, "must end in in_features=3"),
    (lambda: nn.Embedding(3, 2)(torch.tensor([3])), IndexError, "3 with a table of 3 rows"),
    (lambda: nn.EmbeddingBag(3, 2)(torch.tensor([0])), ValueError, "offsets has to be a 1D Tensor"),
    (lambda: nn.LSTM(3, 2)(torch.ones(4, 1, 5)), RuntimeError, "Expected 3, got 5"),
    (
        lambda: nn.GRUCell(3, 2)(torch.ones(4, 3), torch.ones(3, 2)),
        RuntimeError,
        "batch size 4 doesn't match hidden0 batch size 3",
    ),
    (lambda: nn.MultiheadAttention(5, 2), AssertionError, "divisible by num_heads, got 5 and 2"),
    (lambda: F.group_norm(torch.ones(2, 3), 2), RuntimeError, "divisible by num_groups"),
    (lambda: nn.PReLU(2)(torch.ones(2, 3)), RuntimeError, "channel size = 3"),
    (lambda: F.glu(torch.ones(3)), RuntimeError, "Halving dimension must be even"),
    (lambda: F.one_hot(torch.tensor([0, 4]), 3), RuntimeError, "smaller than num_classes=3, got 4"),
    (lambda: F.pad(torch.ones(2), (1, 1), mode="reflect"), NotImplementedError, "'reflect'"),
    (lambda: nn.init.kaiming_uniform_(torch.ones(3)), ValueError, "fewer than 2 dimensions"),
    (lambda: nn.BatchNorm2d(3).eval()(IMAGES), RuntimeError, "weight should contain 5 elements not 3"),
    (
        lambda: F.instance_norm(IMAGES, ONES(3), ONES(3)),
        RuntimeError,
        "running_mean should contain 5 elements not 3",
    ),
    (
        lambda: F.batch_norm(IMAGES, ONES(5), ONES(5), ONES(1), ONES(5)),
        RuntimeError,
        "weight should contain 5 elements not 1",
    ),
    (
        lambda: F.batch_norm(IMAGES[:, :1], ONES(2), ONES(1), training=True),
        RuntimeError,
        "running_mean should contain 1 elements not 2",
    ),
    (lambda: F.group_norm(IMAGES, 5, ONES(1, 5)), RuntimeError, r"weight of shape \[1, 5\]"),
    (
        lambda: F.layer_norm(ONES(2, 3, 4), (3, 4), ONES(4, 3)),
        RuntimeError,
        r"weight of shape \[4, 3\] and normalized_shape = \[3, 4\]",
    ),
    (
        lambda: F.rms_norm(ONES(2, 3, 4), (3, 4), ONES(12)),
        RuntimeError,
        r"weight of shape \[12\] and normalized_shape = \[3, 4\]",
    ),
    (
        lambda: F.layer_norm(ONES(2, 3), (3,), ONES(3).double()),
        RuntimeError,
        "input's dtype float32, but it has float64",
    ),
    (
        lambda: F.linear(ONES(2, 3), ONES(4, 3), ONES(4).double()),
        RuntimeError,
        "bias should be of dtype float32",
    ),
    (
        lambda: F.conv_transpose2d(IMAGES, ONES(5, 4, 3, 3), stride=2, output_padding=-1),
        RuntimeError,
        "negative output_padding is not supported",
    ),
    (lambda: F.conv2d(IMAGES, ONES(4, 5, 3, 3), stride=2.5), TypeError, "stride must be a single int"),
    (lambda: F.fractional_max_pool2d(IMAGES, 0, output_size=2), RuntimeError, "must be greater than zero"),
    (
        lambda: F.cross_entropy(ONES(4, 3), ONES(4, 3), weight=ONES(1)),
        RuntimeError,
        "either for all 3 classes or no classes",
    ),
    (
        lambda: F.multi_margin_loss(ONES(2, 3), torch.tensor([0, 1]), weight=ONES(4)),
        RuntimeError,
        r"expected 3 but got \[4\]",
    ),
    (lambda: F.bilinear(ONES(2, 3), ONES(2, 3), ONES(5, 3, 3), ONES(1)), RuntimeError, r"expected \[5\]"),
    (lambda: F.soft_margin_loss(ONES(1), ONES(5)), RuntimeError, "does not broadcast to the size of input"),
    (
        lambda: F.binary_cross_entropy_with_logits(ONES(3), ONES(3), pos_weight=ONES(2, 3)),
        RuntimeError,
        "pos_weight does not broadcast",
    ),
    (lambda: F.binary_cross_entropy(ONES(3), ONES(3), ONES(2, 3)), RuntimeError, "weight does not broadcast"),
    (
        lambda: F.binary_cross_entropy(ONES(3), ONES(3) * 2),
        RuntimeError,
        "elements of target should be between 0 and 1",
    ),
    (lambda: F.binary_cross_entropy(ONES(3), ONES(3).long()), RuntimeError, "found dtype int64 of target"),
    (lambda: F.kl_div(ONES(3), ONES(3).long()), NotImplementedError, "not implemented for a target of int64"),
    (
        lambda: attend(mask=ONES(4, 4).long()),
        RuntimeError,
        r"got int64; a mask of zeros and ones is one by .bool\(\)",
    ),
    (lambda: attend(mask=ONES(2, 1, 4, 4)), RuntimeError, "does not broadcast to the scores"),
    (lambda: attend(mask=ONES(4, 4).long(), dropout_p=0.5), RuntimeError, "expected attn_mask of dtype bool"),
    (
        lambda: F.ctc_loss(ONES(9, 2, 3), ONES(4, 2).long(), (9, 9), (4, 4)),
        RuntimeError,
        r"Expected targets of 2 sequences \(N, S\), but got size \[4, 2\]",
    ),
]
"""What is not refused in time is read beyond the end of an array, or broadcast into a wrong result."""


@pytest.mark.parametrize(("act", "error", "message"), ERRORS)
def test_errors(act: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        act()


@pytest.mark.parametrize("weight", [None, ONES(3)])
def test_cross_entropy_beside_a_hidden_class(weight: torch.Tensor | None) -> None:
    scores = torch.tensor([[1.0, -np.inf, 2.0]], requires_grad=True)
    loss = F.cross_entropy(scores, torch.tensor([0]), weight=weight)
    loss.backward()
    share = 1 / (1 + np.exp(1.0))
    torch.testing.assert_close(loss, torch.tensor(-np.log(share), dtype=torch.float32))
    torch.testing.assert_close(scores.grad, torch.tensor([[share - 1, 0.0, 1 - share]], dtype=torch.float32))


def test_the_loss_of_many_labels_is_a_mean_over_the_classes_of_the_input() -> None:
    input, target = torch.arange(4.0).reshape(4, 1), ONES(4)
    loss = F.multilabel_soft_margin_loss(input, target)
    torch.testing.assert_close(loss, 4 * F.soft_margin_loss(input[:, 0], target))


def test_shapes_that_broadcast_by_mistake_are_told() -> None:
    with pytest.warns(UserWarning, match="different to the input size"):
        F.mse_loss(torch.ones(3, 1), torch.ones(3))


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool2d(x, 2, return_indices=True),
        lambda x: F.adaptive_max_pool2d(x, (3, 3), return_indices=True),
        lambda x: F.fractional_max_pool2d(x, 2, output_size=3, return_indices=True),
    ],
)
def test_places_of_a_pool_that_were_changed_are_not_used_by_backward(pool: Any) -> None:
    values, places = pool(torch.randn(1, 1, 8, 8, requires_grad=True))
    places.add_(10**6)
    with pytest.raises(RuntimeError, match="has been modified"):
        values.sum().backward()


@pytest.mark.parametrize(
    "lost",
    [F.embedding, lambda i, x: F.embedding_bag(i[None], x), lambda i, x: F.cross_entropy(x[: len(i)], i)],
)
def test_indices_that_were_changed_unseen_are_not_written_to(lost: Any) -> None:
    table, indices = torch.randn(5, 4, requires_grad=True), torch.tensor([0, 3, 1])
    loss = lost(indices, table).sum()
    indices.data.add_(10**6)  # which no version counter notices
    with pytest.raises(IndexError, match=r"out of (bounds|range)"):
        loss.backward()


def test_inplace_is_an_argument_of_activations_and_of_no_other_op() -> None:
    """Under its own name or in its place; the result is the input, and the gradient is that of the other form."""
    shown = {
        name: list(inspect.signature(getattr(F, name)).parameters)
        for name in ("relu", "leaky_relu", "elu", "hardtanh", "threshold")
    }
    assert shown == {
        "relu": ["input", "inplace"],
        "leaky_relu": ["input", "negative_slope", "inplace"],
        "elu": ["input", "alpha", "inplace"],
        "hardtanh": ["input", "min_val", "max_val", "inplace"],
        "threshold": ["input", "threshold", "value", "inplace"],
    }
    assert "inplace" not in inspect.signature(F.gelu).parameters
    for call in (
        lambda x: F.relu(x, True),
        lambda x: F.elu(x, 1.5, True),
        lambda x: F.elu(input=x, alpha=1.5, inplace=True),
        lambda x: F.hardtanh(x, -1.0, inplace=True),
    ):
        x = torch.linspace(-2, 2, 5)
        assert call(x) is x and x.min() > -1.5
    with pytest.raises(TypeError):
        F.elu(torch.ones(2), 1.0, False, 1.0)
    with pytest.raises(TypeError):
        F.sigmoid(torch.ones(2), True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64])
def test_softmax_computes_in_the_dtype_that_is_asked_for(dtype: torch.dtype) -> None:
    scores = torch.tensor([[1, 2, 3], [0, 0, 9]], dtype=dtype)
    for function in (torch.softmax, torch.log_softmax, F.softmax, F.log_softmax, F.softmin):
        out = function(scores, dim=1, dtype=torch.float64)
        assert out.dtype is torch.float64 and torch.equal(out, function(scores.double(), dim=1))
    assert torch.softmax(scores, 1, torch.float32).dtype is torch.float32
    if dtype.is_floating_point:
        scores.requires_grad_()
        scores.softmax(1, dtype=torch.float64)[0, 0].backward()
        assert scores.grad.dtype is dtype and scores.grad[1].tolist() == [0, 0, 0]


def test_attention_dropout_drops_weights_and_keeps_their_mean() -> None:
    torch.manual_seed(0)
    q = torch.zeros(1, 200, 4)
    value = torch.ones(1, 200, 3)
    out = F.scaled_dot_product_attention(q, q, value, dropout_p=0.5, is_causal=True)
    assert out.shape == (1, 200, 3)
    first = set(out[0, 0].tolist())  # position 0 sees itself only: kept, and doubled, or dropped
    assert first in ({0.0}, {2.0})
    assert float(out[0, 100:].mean()) == pytest.approx(1.0, abs=0.05)


def test_the_gradient_norm_does_not_depend_on_the_layout() -> None:
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    together = [torch.from_numpy(part) for part in np.split(values, [7, 300])]
    apart = [torch.from_numpy(part.copy()) for part in reversed(np.split(values, [7, 300]))]
    norms = []
    for grads in (together, apart[::-1]):
        owners = [nn.Parameter(torch.zeros(*g.shape)) for g in grads]
        for p, g in zip(owners, grads, strict=True):
            p.grad = g
        norms.append(nn.utils.clip_grad_norm_(owners, 1.0).item())
        assert nn.utils.get_total_norm([p.grad for p in owners]).item() == pytest.approx(1.0, rel=1e-6)
    assert norms[0] == norms[1]


def test_clipping_of_numbers_that_are_none() -> None:
    p = nn.Parameter(torch.zeros(2))
    assert nn.utils.clip_grad_norm_([p], 1.0).item() == 0.0
    p.grad = torch.tensor([1.0, float("inf")])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    p.grad = torch.tensor([1.0, float("nan")])
    nn.utils.clip_grad_norm_([p], 1.0)
    assert p.grad.isnan().all()


def test_parameters_as_a_vector_and_back() -> None:
    model = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(model.parameters())
    assert vector.shape == (9,) and vector.requires_grad
    nn.utils.vector_to_parameters(vector.detach() * 2, model.parameters())
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()), vector.detach() * 2)
    with pytest.raises(RuntimeError, match="size 2"):
        nn.utils.vector_to_parameters(torch.ones(8), model.parameters())


def test_hardtanh_keeps_the_dtype_and_passes_no_gradient_at_its_limits() -> None:
    whole = torch.tensor([-3, 0, 2, 7])
    assert F.hardtanh(whole, -1.5, 1.5).tolist() == [-1, 0, 1, 1]
    assert F.hardtanh(whole, -1.5, 1.5).dtype is torch.int64
    assert nn.ReLU6(inplace=True)(whole) is whole and whole.tolist() == [0, 0, 2, 6]
    assert F.relu6(whole.to(torch.uint8)).dtype is torch.uint8
    for dtype, error, text in (
        (torch.uint8, RuntimeError, "unsigned type with negative limits"),
        (torch.bool, RuntimeError, "Bool inputs not supported"),
        (torch.complex64, NotImplementedError, "not implemented for 'ComplexFloat'"),
    ):
        with pytest.raises(error, match=text):
            F.hardtanh(torch.ones(2).to(dtype))
    x = torch.tensor([-1.0, 0.0, 1.0, 6.0, 7.0], requires_grad=True)
    F.relu6(x).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize(("steps", "hidden"), [(1, 5), (3, 5), (1, 32), (3, 32)])
def test_each_sequence_of_a_batch_is_what_it_is_alone(kind: Any, steps: int, hidden: int):
    torch.manual_seed(0)
    layer, x = kind(4, hidden), torch.randn(steps, 20, 4, requires_grad=True)
    out = layer(x)[0]
    (slope,) = torch.autograd.grad(out.sum(), x)
    for i in (0, 9, 19):
        own = x[:, i : i + 1]
        alone = layer(own)[0]
        assert torch.allclose(out[:, i : i + 1], alone, atol=1e-6)
        assert torch.allclose(slope[:, i : i + 1], torch.autograd.grad(alone.sum(), own)[0], atol=1e-6)


@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 0.5]])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_targets_that_are_all_ignored_have_no_gradient(weight, smoothing):
    """The mean over none of them is nan."""
    x = torch.randn(4, 3, requires_grad=True)
    weight = None if weight is None else torch.tensor(weight)
    loss = F.cross_entropy(x, torch.full((4,), -100), weight=weight, label_smoothing=smoothing)
    loss.backward()
    assert loss.isnan() and x.grad.tolist() == [[0.0] * 3] * 4


def test_a_table_without_columns_has_a_sparse_gradient():
    table = nn.Embedding(10, 0, sparse=True)
    table(torch.tensor([[0, 2], [4, 3]])).sum().backward()
    assert table.weight.grad.is_sparse and table.weight.grad.shape == (10, 0)
    assert (
        repr(nn.Embedding(3, 2, padding_idx=1, sparse=True)) == "Embedding(3, 2, padding_idx=1, sparse=True)"
    )
    with pytest.raises(RuntimeError, match="Long, Int; but got int16"):
        table(torch.tensor([1], dtype=torch.int16))


def test_packed_sequences_become_other_dtypes_and_are_unpacked_into_copies():
    rnn = nn.utils.rnn
    packed = rnn.pack_sequence([torch.tensor([4, 5]), torch.tensor([1, 2, 3])], enforce_sorted=False)
    for name in ("long", "int", "short", "char", "byte", "float", "double", "half"):
        cast = getattr(packed, name)()
        assert cast.data.dtype is getattr(packed.data, name)().dtype and (cast is packed) is (name == "long")
    padded = rnn.pad_sequence([torch.tensor([1, 2]), torch.tensor([0.5])])
    assert padded.tolist() == [[1, 0], [2, 0]], "the first one's dtype"
    parts = rnn.unpad_sequence(padded, torch.tensor([2, 1]))
    parts[0].zero_()
    assert padded[1, 0] == 2 and [len(p) for p in parts] == [2, 1]


def test_of_equal_channels_the_first_are_kept():
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    prune.ln_structured(layer, "weight", 1, 2, 0)
    assert layer.weight_mask.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    with pytest.raises(TypeError, match="Must be int or float"):
        prune.L1Unstructured("half")


def test_attention_takes_a_mask_that_is_causal_too():
    q = torch.randn(2, 3, 4, 5)
    sees = torch.tensor([True, False, True, True])
    both = F.scaled_dot_product_attention(q, q, q, sees.expand(4, 4), is_causal=True)
    expected = F.scaled_dot_product_attention(q, q, q, sees & torch.ones(4, 4, dtype=torch.bool).tril())
    torch.testing.assert_close(both, expected)
    added = torch.zeros(1, 4).masked_fill(~sees, -torch.inf)
    torch.testing.assert_close(F.scaled_dot_product_attention(q, q, q, added, is_causal=True), expected)
    with pytest.raises(RuntimeError, match="attn_mask and is_causal must not both be set"):
        F.scaled_dot_product_attention(q[0], q[0], q[0], sees.expand(4, 4), is_causal=True)


def test_ctc_takes_a_blank_among_the_labels_for_a_label() -> None:
    scores = ((torch.arange(24.0).reshape(2, 4, 3) - 12) / 100).transpose(0, 1).log_softmax(-1)
    labels = torch.tensor([[1, 2, 1], [1, 2, 0]])
    losses = F.ctc_loss(scores, labels, (4, 4), (3, 3), reduction="none")
    torch.testing.assert_close(losses, torch.tensor([2.4429, 2.4544]), atol=5e-5, rtol=0)


def test_gaussian_loss_of_one_number():
    x = torch.tensor(2.0, requires_grad=True)
    F.gaussian_nll_loss(x, torch.tensor(1.0), torch.tensor(4.0)).backward()
    assert x.grad is not None and x.grad.item() == 0.25


def test_truth_values_and_whole_numbers_beside_floats():
    flags, x = torch.tensor([True, False]), torch.tensor([0.5, 0.0])
    assert F.mse_loss(flags, x).item() == F.mse_loss(x, flags).item() == 0.125
    whole = torch.tensor([3, 4])
    assert F.cosine_similarity(whole, whole.float(), dim=0).item() == pytest.approx(1)
    single = torch.tensor(
        0.25, dtype=torch.float64
    )  # whose type counts, as it is spread over the shape first
    with pytest.warns(UserWarning, match="different to the input size"):
        made = [f(x, single) for f in (F.mse_loss, F.l1_loss, F.smooth_l1_loss)]
    assert {y.dtype for y in made} == {torch.float64}
