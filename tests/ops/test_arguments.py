"""Arguments of the wrong kind: PyTorch's `TypeError`, with the name of the function and of the argument."""

from collections.abc import Callable

import numpy as np
import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn

x = torch.arange(4.0)
square = x.reshape(2, 2)
INF = float("inf")

WRONG: list[tuple[str, Callable[[], object]]] = [
    (r"maximum\(\): argument 'other' \(position 2\) must be Tensor, not int", lambda: torch.maximum(x, 2)),
    (
        r"minimum\(\): argument 'input' \(position 1\) must be Tensor, not float",
        lambda: torch.minimum(2.0, x),
    ),
    (r"maximum\(\): argument 'other'", lambda: torch.maximum(x, np.float32(2))),
    (r"atan2\(\): argument 'other'", lambda: torch.atan2(x, 1.0)),
    (r"logical_and\(\): expected a Tensor, got int", lambda: torch.logical_and(x, 1)),
    (r"eq\(\): argument 'input'", lambda: torch.eq(2, x)),
    (r"lt\(\): argument 'input'", lambda: torch.lt(2.0, x)),
    (r"add\(\): argument 'other' \(position 2\) must be Tensor, not NoneType", lambda: torch.add(x, None)),
    (r"lt\(\): argument 'other'", lambda: torch.lt(x, None)),
    (r"mm\(\): argument 'mat2' \(position 2\) must be Tensor, not int", lambda: torch.mm(square, 2)),
    (r"dot\(\): argument 'tensor'|dot\(\): argument 'other'", lambda: torch.dot(x, 2)),
    (r"equal\(\): argument 'other'", lambda: torch.equal(x, 2)),
    (r"where\(\): argument 'condition'", lambda: torch.where(True, x, x)),
    (r"max", lambda: torch.max(2, x)),
    (r"sum\(\): argument 'dim' must be int, not str", lambda: x.sum("a")),
    (r"sum\(\): argument 'dim' must be int, not float", lambda: x.sum(0.5)),
    (r"prod\(\): argument 'dim' must be int, not tuple", lambda: square.prod((0, 1))),
    (r"argmax\(\): argument 'dim' must be int, not tuple", lambda: square.argmax((0, 1))),
    (r"sort\(\): argument 'dim' must be int, not bool", lambda: square.sort(True)),
    (r"topk\(\): argument 'dim' must be int, not bool", lambda: square.topk(1, True)),
    (r"softmax\(\): argument 'dim' must be int, not bool", lambda: F.softmax(square, False)),
    (r"sort\(\): argument 'descending' must be bool, not int", lambda: torch.sort(square, 0, 1)),
    (r"argsort\(\): argument 'descending' must be bool, not int", lambda: square.argsort(descending=1)),
    (r"max\(\): argument 'keepdim' must be bool, not int. Give several dims", lambda: square.max(0, 1)),
    (r"var\(\): argument 'keepdim' must be bool, not int", lambda: square.std(0, keepdim=1)),
    (r"norm\(\): argument 'keepdim' must be bool, not int", lambda: square.norm(2, 0, 1)),
    (r"multinomial\(\): argument 'replacement' must be bool, not int", lambda: torch.multinomial(x, 2, 1)),
    (r"isclose\(\): argument 'equal_nan' must be bool, not int", lambda: torch.isclose(x, x, 1, 1, 1)),
    (r"can't assign a str", lambda: x.__setitem__(0, "a")),
    (r"can't assign a list", lambda: x.__setitem__(slice(2), [1, 2])),
    (r"finfo\(\): expected a floating-point dtype", lambda: torch.finfo(torch.int32)),
    (r"iinfo\(\): expected an integer dtype", lambda: torch.iinfo(torch.float32)),
]


@pytest.mark.parametrize("size", [8, 4096])  # NumPy computes small arrays, a compiled kernel large ones
@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64])
def test_relu_refuses_what_it_is_not_meant_for_in_any_size(size: int, dtype: torch.dtype):
    input = torch.ones(size, dtype=dtype)
    for call in (torch.relu, F.relu, torch.relu_, lambda x: F.relu(x, inplace=True), torch.Tensor.relu):
        with pytest.raises(NotImplementedError, match=r"relu.*not implemented for '(Bool|ComplexFloat)'"):
            call(input)


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
@pytest.mark.parametrize("weights", [7, 9])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])  # the portable form, and the compiled one
def test_a_loss_refuses_weights_that_are_not_one_for_each_class(loss, weights: int, dtype: torch.dtype):
    scores, target = torch.zeros(4, 8, dtype=dtype), torch.tensor([0, 1, 2, 3])
    with pytest.raises(RuntimeError, match="weight tensor should be defined either for all 8 classes"):
        loss(scores, target, torch.ones(weights, dtype=dtype))


@pytest.mark.parametrize(("message", "call"), WRONG, ids=[m[:24] for m, _ in WRONG])
def test_wrong_kinds_are_type_errors(message: str, call: Callable[[], object]):
    with pytest.raises(TypeError, match=message):
        call()


def test_a_dimension_may_be_anything_that_counts_as_an_int():
    assert square.sum(np.int64(1)).tolist() == square.sum(torch.tensor(1)).tolist() == [1.0, 5.0]


def test_a_tensor_of_one_number_stands_for_the_number():
    x, number = torch.arange(4.0), torch.tensor(2.0)
    assert x.add(x, alpha=-number).tolist() == x.neg().tolist()
    assert x.clone().sub_(x, alpha=number).tolist() == x.neg().tolist()
    assert x.index_add(0, torch.tensor([1]), torch.ones(1), alpha=number).tolist() == [0, 3, 2, 3]
    assert [part.tolist() for part in x.split(torch.tensor(3))] == [[0, 1, 2], [3]]
    for wrong in (torch.ones(1), number.clone().requires_grad_()):
        with pytest.raises(TypeError):
            x.add(x, alpha=wrong)


def test_bounds_of_whole_numbers_have_names():
    x = torch.ones(50)
    assert set(torch.randint_like(x, high=2).tolist()) == {0.0, 1.0}
    assert (
        set(torch.randint_like(x, low=3, high=4).tolist())
        == {3.0}
        == set(torch.randint_like(x, 3, 4).tolist())
    )
    with pytest.raises(TypeError):
        torch.randint_like(x)


def test_a_whole_alpha_of_bools_is_a_bool():
    flags = torch.tensor([True, False])
    for out in (torch.add(flags, flags, alpha=2), flags.clone().add_(flags, alpha=2)):
        assert out.dtype is torch.bool and out.tolist() == [True, False]
    assert torch.add(flags, flags, alpha=0).tolist() == [True, False]


def test_weighted_sums_are_computed_in_the_common_type():
    half, small = torch.tensor([2.0], dtype=torch.float16), torch.tensor([100], dtype=torch.int8)
    for sums in (
        lambda: torch.ones(1).add_(half, alpha=1e5),
        lambda: torch.rsub(half, torch.ones(1), alpha=-1e5),
    ):
        assert sums().tolist() == [200001.0]
    assert (
        torch.ones(1, dtype=torch.float64).add(torch.tensor([0.1]), alpha=0.3).item()
        == 1 + 0.3 * torch.tensor(0.1).item()
    )
    assert torch.ones(1, dtype=torch.int64).sub(small, alpha=100).tolist() == [-9999]
    assert torch.add(torch.tensor([True]), True, alpha=2).dtype is torch.bool


@pytest.mark.parametrize("function", [torch.max, torch.min, torch.median, torch.nanmedian])
def test_the_gradient_of_an_extremum_of_nans_is_shared_among_them(function: Callable[..., torch.Tensor]):
    nans = torch.full((4,), float("nan"), requires_grad=True)
    function(nans).backward()
    assert nans.grad.tolist() == [0.25] * 4


def test_a_negative_number_to_a_complex_power_has_a_gradient():
    z = torch.tensor([0.5 + 0.3j, -0.2j], dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: torch.pow(-1, z), z)


def test_the_exponent_of_a_power_has_its_name():
    x = torch.tensor([2.0, 3.0])
    assert torch.pow(x, exponent=2).tolist() == x.pow(exponent=2).tolist() == [4, 9]
    assert torch.pow(2.0, exponent=x, out=torch.empty(2)).tolist() == [4, 8]
    assert x.pow_(exponent=3).tolist() == x.tolist() == [8, 27]


VALUES: dict[str, tuple[Callable[[], object], type[Exception]]] = {
    "prelu": (lambda: F.prelu(torch.ones(2, 8), torch.ones(2, 4)), RuntimeError),
    "rrelu": (lambda: F.rrelu(torch.ones(2), 0.3, 0.1), RuntimeError),
    "triplet-margin": (lambda: F.triplet_margin_loss(*[torch.ones(3, 4)] * 3, margin=-1.0), ValueError),
    "no-classes": (lambda: F.multilabel_margin_loss(torch.ones(0), torch.ones(0).long()), RuntimeError),
    "table-of-one-row": (lambda: F.embedding(torch.tensor([0]), torch.ones(3)), RuntimeError),
    "steps-of-linspace": (lambda: torch.linspace(0, 3, 4.0), TypeError),  # type: ignore[arg-type]
    "imaginary-fill": (
        lambda: torch.ones(1).masked_fill(torch.tensor([True]), torch.tensor(2j)),
        RuntimeError,
    ),
    "isclose-to-a-number": (lambda: torch.isclose(torch.ones(2), 1.0), TypeError),  # type: ignore[arg-type]
    "batch-norm-without-eps": (lambda: nn.BatchNorm1d(2, eps=0.0)(torch.ones(3, 2)), ValueError),
    "delta-of-huber": (lambda: nn.HuberLoss(delta=1j), TypeError),  # type: ignore[arg-type]
    "ignored-probability": (lambda: F.cross_entropy(square, square, ignore_index=1), RuntimeError),
    "flags-of-rnn": (lambda: nn.LSTM(2, 3, bias=0), TypeError),  # type: ignore[arg-type]
    "no-sections": (lambda: torch.ones(2).tensor_split(), TypeError),
}


@pytest.mark.parametrize("case", VALUES)
def test_values_that_have_no_meaning_are_refused(case: str):
    call, kind = VALUES[case]
    with pytest.raises(kind):
        call()


pair, table = torch.tensor([1, 2]), torch.arange(6.0).reshape(2, 3)
spd = torch.eye(2) + 1
lower = torch.linalg.cholesky(spd)

NAMED: list[tuple[Callable[[], object], Callable[[], object]]] = [
    (lambda: torch.arange(end=3), lambda: torch.arange(3)),
    (lambda: table.view(size=(3, 2)), lambda: table.view(3, 2)),
    (lambda: table.expand(size=(2, 2, 3)), lambda: table.expand(2, 2, 3)),
    (lambda: table.repeat(repeats=(1, 2)), lambda: table.repeat(1, 2)),
    (lambda: torch.tile(input=table, dims=(1, 2)), lambda: table.tile(1, 2)),
    (lambda: table.sum_to_size(size=(1, 3)), lambda: table.sum_to_size(1, 3)),
    (lambda: table.clone().resize_(size=(1, 2)), lambda: table[:1, :2]),
    (lambda: table.clone().resize_as_(the_template=pair), lambda: table[0, :2]),
    (lambda: torch.swapaxes(table, axis0=0, axis1=1), lambda: table.T),
    (lambda: table.clone().swapaxes_(axis0=0, axis1=1), lambda: table.T),
    (lambda: torch.split(table, split_size_or_sections=[1, 1]), lambda: table.split([1, 1])),
    (lambda: torch.hsplit(input=table, sections=3), lambda: table.split(1, 1)),
    (lambda: table.hsplit(1, 2), lambda: table.split(1, 1)),
    (lambda: table.tensor_split(tensor_indices_or_sections=pair[:1]), lambda: table.split(1)),
    (lambda: torch.repeat_interleave(repeats=pair), lambda: torch.tensor([0, 1, 1])),
    (lambda: torch.addmm(input=spd, mat1=spd, mat2=spd, beta=0), lambda: spd @ spd),
    (lambda: spd[0].addmv(mat=spd, vec=spd[0], beta=0), lambda: spd @ spd[0]),
    (lambda: torch.linalg.inv(torch.linalg.cholesky(input=spd)), lambda: torch.inverse(lower)),
    (lambda: torch.det(input=spd), lambda: torch.linalg.det(spd)),
    (lambda: torch.cholesky_solve(input=spd, input2=lower), lambda: torch.cholesky_solve(spd, lower)),
    (lambda: torch.linalg.lstsq(input=spd, b=spd)[0], lambda: torch.linalg.lstsq(spd, spd)[0]),
    (lambda: F.one_hot(input=pair), lambda: torch.eye(3, dtype=torch.int64)[pair]),
    (lambda: torch.trapezoid(pair, dx=torch.tensor(2)), lambda: torch.tensor(3.0)),
    (lambda: torch.signal.windows.hann(torch.tensor(3)), lambda: torch.tensor([0.0, 1, 0])),
    (lambda: torch.signal.windows.bartlett(torch.tensor(1.0)), lambda: torch.ones(1)),
    (lambda: pair.scatter_reduce(0, pair - 1, pair * 2, "max"), lambda: pair * 2),
    (lambda: pair.scatter_reduce(0, pair - 1, pair * 2, "min"), lambda: pair),
    (
        lambda: F.ctc_loss(torch.zeros(4, 1, 3), pair[None].float(), (4,), (2,)),
        lambda: F.ctc_loss(torch.zeros(4, 1, 3), pair[None], (4,), (2,)),
    ),
    (lambda: torch.isin(elements=pair, test_element=1), lambda: pair == 1),
    (lambda: torch.relu_(input=table.clone()), lambda: table),
    (lambda: torch.fill_(input=table.clone(), value=0), lambda: table * 0),
    (lambda: torch.dropout(table, p=0.5, train=False), lambda: table),
    (lambda: torch.embedding(table, indices=pair - 1), lambda: table),
    (lambda: torch._foreach_add([table], scalar=1)[0], lambda: table + 1),
    (lambda: torch._foreach_addcmul([table], tensor1=[table], tensor2=[table])[0], lambda: table + table**2),
    (lambda: table.cpu(memory_format=torch.preserve_format), lambda: table),
    (
        lambda: torch.batch_norm(table, None, None, torch.zeros(3), torch.ones(3), False, 0.1, 0.0, True),
        lambda: table,
    ),
    (lambda: torch.layer_norm(table, (3,), None, None, 0.1, True), lambda: F.layer_norm(table, (3,), eps=0.1)),
    (
        lambda: torch.group_norm(table, 1, eps=0.1, cudnn_enabled=False),
        lambda: F.group_norm(table, 1, eps=0.1),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("named", "expected"), NAMED)
def test_arguments_have_the_names_and_kinds_that_pytorch_gives_them(named, expected):
    got, wanted = named(), expected()
    if isinstance(wanted, torch.Tensor):
        got, wanted = (got,), (wanted,)
    assert len(got) == len(wanted) and all(map(torch.equal, got, wanted))


signs = torch.tensor([[1.0, -1, 1], [-1, 1, 1]])
likely = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.2, 0.7]])
REDUCED = {
    "binary_cross_entropy_with_logits": (
        lambda f, *by: f(signs, likely, likely, likely, *by),
        lambda f, by: f(signs, likely, likely, pos_weight=likely, reduction=by),
    ),
    "cosine_embedding_loss": (
        lambda f, *by: f(signs, likely, signs[0, :2], 0.1, *by),
        lambda f, by: f(signs, likely, signs[0, :2], 0.1, reduction=by),
    ),
    "ctc_loss": (
        lambda f, *by: f(torch.zeros(4, 1, 3), pair[None], (4,), (2,), 0, *by),
        lambda f, by: f(torch.zeros(4, 1, 3), pair[None], (4,), (2,), 0, by),
    ),
    "hinge_embedding_loss": (
        lambda f, *by: f(likely, signs, 1.5, *by),
        lambda f, by: f(likely, signs, 1.5, reduction=by),
    ),
    "kl_div": (lambda f, *by: f(signs, likely, *by), lambda f, by: f(signs, likely, reduction=by)),
    "margin_ranking_loss": (
        lambda f, *by: f(likely, likely**2, signs, 0.1, *by),
        lambda f, by: f(likely, likely**2, signs, 0.1, reduction=by),
    ),
    "poisson_nll_loss": (
        lambda f, *by: f(signs, likely, True, True, 1e-8, *by),
        lambda f, by: f(signs, likely, True, True, eps=1e-8, reduction=by),
    ),
    "triplet_margin_loss": (
        lambda f, *by: f(signs, likely, likely**2, 1.5, 2, 1e-6, False, *by),
        lambda f, by: f(signs, likely, likely**2, 1.5, 2, 1e-6, False, reduction=by),
    ),
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", REDUCED)
def test_losses_of_torch_take_their_reduction_as_a_number_after_the_other_arguments(name):
    by_number, by_name = REDUCED[name]
    for number, reduction in enumerate(("none", "mean", "sum")):
        got = by_number(getattr(torch, name), number)
        assert torch.equal(got, by_name(getattr(F, name), reduction))
    with pytest.raises(ValueError, match=r"3 is not a valid value.*0 \(none\), 1 \(mean\) or 2 \(sum\)"):
        by_number(getattr(torch, name), 3)


ATEN_LOSSES = {
    "cross_entropy_loss": (F.cross_entropy, (signs, pair), (None,)),
    "l1_loss": (F.l1_loss, (signs, likely), ()),
    "mse_loss": (F.mse_loss, (signs, likely), ()),
    "multi_margin_loss": (F.multi_margin_loss, (signs, pair), (1, 1.0, None)),
    "multilabel_margin_loss": (F.multilabel_margin_loss, (likely, pair.new_tensor([[0, 1, -1]] * 2)), ()),
    "nll_loss": (F.nll_loss, (signs, pair), (None,)),
    "soft_margin_loss": (F.soft_margin_loss, (likely, signs), ()),
}


@pytest.mark.parametrize("name", ATEN_LOSSES)
def test_losses_of_aten_take_their_reduction_as_a_number(name):
    function, tensors, others = ATEN_LOSSES[name]
    op = getattr(torch.ops.aten, name)
    for number, reduction in enumerate(("none", "mean", "sum")):
        expected = function(*tensors, reduction=reduction)
        assert torch.equal(op(*tensors, *others, number), expected)
        assert torch.equal(op(*tensors, reduction=number), expected)


def test_dtypes_by_the_names_of_arguments():
    assert torch.promote_types(type1=torch.int8, type2=torch.float32) is torch.float32
    assert torch.result_type(tensor=pair, other=1.0) is torch.float32


def test_a_step_of_arange_needs_both_ends():
    with pytest.raises(TypeError, match="step needs start and end"):
        torch.arange(5, step=2)


MASK = torch.tensor([True, False])
TOO_LARGE: dict[str, Callable[[], object]] = {
    "full": lambda: torch.full((2,), 1e40),
    "full-imaginary": lambda: torch.full((2,), 1e40j, dtype=torch.complex64),
    "fill": lambda: torch.ones(2, dtype=torch.float16).fill_(1e9),
    "item": lambda: torch.ones(2).__setitem__(0, 1e40),
    "masked": lambda: torch.ones(2, dtype=torch.float16).masked_fill(MASK, -1e9),
    "masked-in-place": lambda: torch.ones(2, dtype=torch.bfloat16).masked_fill_(MASK, 1e39),
    "masked-by-a-tensor": lambda: torch.ones(2, dtype=torch.int8).masked_fill(MASK, torch.tensor(1e9)),
    "index": lambda: torch.ones(2, dtype=torch.float16).index_fill(0, torch.tensor([0]), 1e9),
    "scatter": lambda: torch.ones(2).scatter(0, torch.tensor([0]), 1e40),
    "where": lambda: torch.where(MASK, torch.ones(2, dtype=torch.int8), 300),
    "where-float": lambda: torch.where(MASK, torch.ones(2), 1e40),
    "clamp": lambda: torch.ones(2, dtype=torch.uint8).clamp(-5, 300),
    "clamp-float": lambda: torch.ones(2, dtype=torch.float16).clamp(max=1e9),
    "pad": lambda: F.pad(torch.ones(2, dtype=torch.float16), (1, 1), value=1e9),
    "alpha": lambda: torch.ones(2, dtype=torch.float16).add(torch.ones(2, dtype=torch.float16), alpha=1e9),
    "whole-alpha": lambda: torch.ones(2, dtype=torch.int8).add(1, alpha=300),
    "beta": lambda: torch.addmv(torch.ones(2), square, torch.ones(2), beta=1e40),
    "exponent": lambda: torch.ones(2, dtype=torch.int8).pow(300),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_numbers_that_elements_cannot_hold_are_refused(case: str):
    with pytest.raises(RuntimeError, match="without overflow"):
        TOO_LARGE[case]()


def test_infinities_and_what_fits_are_taken():
    half = torch.ones(2, dtype=torch.float16)
    assert half.masked_fill(MASK, -INF).tolist() == [-INF, 1] and half.clamp(max=INF).tolist() == [1, 1]
    half[0] = 1e9  # a single element is converted as another tensor would be
    assert half.tolist() == [INF, 1] and half.fill_(65504.0).tolist() == [65504, 65504]
    assert torch.ones(2).fill_(2 + 0j).tolist() == [2, 2]
    assert torch.where(MASK, torch.ones(2), 1j).tolist() == [1, 1j]
    assert torch.ones(2, dtype=torch.uint8).clamp(min=-1).tolist() == [255, 255]


def test_sums_and_products_of_numbers_alone():
    assert torch.add(1, 2).dtype is torch.int64 and torch.add(1, 2, alpha=3).item() == 7
    assert torch.div(1, 2).item() == 0.5 and torch.mul(2, 1.5).dtype is torch.float32
    with pytest.raises(TypeError):
        torch.maximum(1, 2)  # type: ignore[arg-type]


def test_small_integers_whose_difference_does_not_fit_are_not_close():
    low, zero = torch.tensor([-128], dtype=torch.int8), torch.tensor([0], dtype=torch.int8)
    assert not torch.isclose(low, zero, atol=2.0).item()
    below, above = torch.tensor([3], dtype=torch.uint8), torch.tensor([5], dtype=torch.uint8)
    assert torch.isclose(below, above, atol=2.0).item()


@pytest.mark.parametrize("name", ["atan2_", "logical_and_", "nextafter_", "hypot_"])
def test_forms_in_place_take_numbers_only_where_the_function_does(name: str):
    with pytest.raises(TypeError, match="Tensor"):
        getattr(torch.ones(3), name)(2.0)
    assert torch.ones(3).add_(2.0).tolist() == [3, 3, 3]


def test_operands_of_several_dtypes_are_refused_where_pytorch_does():
    ones, doubles = torch.ones(3), torch.ones(3, dtype=torch.float64)
    for call in (torch.linalg.cross, torch.linalg.vecdot):
        with pytest.raises(RuntimeError, match="to have same dtype"):
            call(ones, doubles)
    with pytest.raises(RuntimeError, match="float_power_"):
        ones.float_power_(2)  # whose result is of float64
    with pytest.raises(RuntimeError, match="abs_"):
        torch.ones(2, dtype=torch.complex64).abs_()
    assert doubles.float_power_(2).tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match="dist"):
        torch.dist(ones, 2)  # type: ignore[arg-type]
