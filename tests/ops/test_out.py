"""Writing into what the caller has: `out=` that is a view, of another size or dtype; memory that is read as well."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import ddpgrad as torch

Call = Callable[[torch.Tensor], Any]


def _part(written: Callable[..., Any], *args: Any, **options: Any) -> tuple[list[float], list[int]]:
    """Six zeros of which the second and third are `out`, and the shape of `out` after that; no warnings."""
    base = torch.zeros(6)
    out = base[1:3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert written(*args, **options, out=out) is out
    return base.tolist(), list(out.shape)


@pytest.mark.parametrize(
    ("function", "arguments", "values", "shape"),
    [
        (torch.arange, (1, 3), [1.0, 2.0], [2]),
        (torch.linspace, (1, 3, 3), [1.0, 2.0, 3.0], [3]),
        (torch.logspace, (0, 2, 3), [1.0, 10.0, 100.0], [3]),
        (torch.ones, (3,), [1.0, 1.0, 1.0], [3]),
        (torch.full, ((3,), 7.0), [7.0, 7.0, 7.0], [3]),
        (torch.eye, (2,), [1.0, 0.0, 0.0, 1.0], [2, 2]),
    ],
)
def test_factories_write_into_the_memory_of_a_view(
    function: Any, arguments: Any, values: list[float], shape: list[int]
):
    memory, found = _part(function, *arguments)
    assert memory == [0.0, *values, *[0.0] * (5 - len(values))] and found == shape


def test_out_of_as_many_elements_keeps_its_shape():
    base = torch.zeros(2, 3)
    for function, arguments in (
        (torch.arange, (1, 5)),
        (torch.linspace, (1, 4, 4)),
        (torch.logspace, (0, 3, 4)),
    ):
        base.zero_()
        out = function(*arguments, out=base[:, :2])
        assert out.shape == (2, 2) and base[:, 2].tolist() == [0.0, 0.0]
        assert base[:, :2].flatten().tolist() == function(*arguments).tolist()
    base[1] = 5.0
    torch.empty(2, out=base[1, :2])
    assert base[1].tolist() == [5.0, 5.0, 5.0], "nothing is written to memory that is asked for as it is"


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
def test_draws_of_0_and_1_fit_into_every_dtype(dtype: torch.dtype):
    chances = torch.full((64,), 0.4)
    torch.manual_seed(5)
    expected = torch.bernoulli(chances)
    torch.manual_seed(5)
    assert torch.equal(torch.bernoulli(chances, out=torch.empty(64, dtype=dtype)), expected.to(dtype))


def test_a_view_grows_in_the_memory_that_it_shares():
    base = torch.full((6,), 5.0)
    with pytest.warns(UserWarning, match="an output with one or more elements was resized"):
        torch.arange(3, out=base[:2])
    assert base.tolist() == [0.0, 1.0, 2.0, 5.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: torch.argmax(torch.ones(3), out=torch.empty((), dtype=torch.int32)),
            "dtype long int, but got int instead",
        ),
        (lambda: torch.nonzero(torch.ones(3), out=torch.empty(0)), "dtype long int, but got float"),
        (
            lambda: torch.sort(torch.ones(3), out=(torch.empty(3), torch.empty(3))),
            "dtype long int, but got float",
        ),
        (
            lambda: torch.max(torch.ones(3), 0, out=(torch.empty(()).double(), torch.empty(()).long())),
            "but got double",
        ),
        (lambda: torch.mm(torch.eye(2), torch.eye(2), out=torch.empty(2, 2).half()), "but got c10::Half"),
        (lambda: torch.linalg.inv(torch.eye(2), out=torch.empty(2, 2).double()), "but got double"),
        (
            lambda: torch.gather(torch.ones(2), 0, torch.tensor([0]), out=torch.empty(1).half()),
            "but got c10::Half",
        ),
        (lambda: torch.add(torch.ones(2), 1, out=torch.empty(2, dtype=torch.int64)), "can't be cast"),
        (
            lambda: torch.linalg.pinv(torch.eye(2), out=torch.empty(2, 2, dtype=torch.int32)),
            "safely castable from Float dtype, but got result with dtype Int",
        ),
        (lambda: torch.zeros(2, dtype=torch.float64, out=torch.empty(2)), "does not match dtype of out"),
        (lambda: torch.arange(2, dtype=torch.int64, out=torch.empty(2)), "does not match dtype of out"),
    ],
)
def test_out_of_a_dtype_that_does_not_fit(call: Callable[[], Any], text: str):
    with pytest.raises(RuntimeError, match=text):
        call()


def test_out_of_functions_that_cast():
    assert torch.add(torch.ones(2), 1, out=torch.empty(2).half()).tolist() == [2.0, 2.0]
    assert torch.eq(torch.ones(2), 1, out=torch.empty(2)).tolist() == [1.0, 1.0]
    assert torch.max(torch.ones(2), out=torch.empty(()).double()).item() == 1.0
    x = torch.tensor([1.6, 1.6, 0.1])
    exact = torch.sum(x, 0, out=torch.empty(()).double()).item()
    assert exact == x.double().sum().item() != x.sum().item(), "computed in the dtype of out"
    assert torch.cumsum(x, 0, out=torch.empty(3).long()).tolist() == [1, 2, 2]
    assert torch.all(x > 0, 0, out=torch.empty(()).byte()).item() == 1
    with pytest.raises(RuntimeError, match="dtype bool, but got float"):
        torch.any(x > 0, 0, out=torch.empty(()))


PARTIAL: dict[str, Call] = {
    "copy_": lambda x: x[1:].copy_(x[:-1]),
    "copy_-transposed": lambda x: x.view(2, 2).copy_(x.view(2, 2).t()),
    "setitem": lambda x: x.__setitem__(slice(1, None), x[:-1]),
    "setitem-places": lambda x: x.__setitem__([0, 1], x[1:3]),
    "add_": lambda x: x[1:].add_(x[:-1]),
    "add_-element": lambda x: x.add_(x[0]),
    "iadd": lambda x: x[1:].__iadd__(x[:-1]),
    "lerp_": lambda x: x[1:].lerp_(x[:-1], 0.5),
    "clamp_": lambda x: x[:-1].clamp_(min=x[1:]),
    "exp-out": lambda x: torch.exp(x[1:], out=x[:-1]),
    "cumsum-out": lambda x: torch.cumsum(x[:3], 0, out=x[1:]),
    "cat-out": lambda x: torch.cat([x[:2], x[2:]], out=x),
    "take-out": lambda x: torch.take(x, torch.tensor([3, 2, 1, 0]), out=x),
    "gather-out": lambda x: torch.gather(x, 0, torch.tensor([3, 2, 1, 0]), out=x),
    "scatter_": lambda x: x.scatter_(0, torch.tensor([0, 1]), x[1:3]),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([0, 1]), x[1:3]),
}


@pytest.mark.parametrize("case", PARTIAL)
def test_memory_that_is_read_and_written_is_refused(case: str):
    x = torch.arange(4.0)
    with pytest.raises(
        RuntimeError, match="some elements of the input tensor and the written-to tensor refer to"
    ):
        PARTIAL[case](x)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


ALLOWED: dict[str, tuple[Call, list[float]]] = {
    "itself": (lambda x: x.add_(x), [0.0, 2.0, 4.0, 6.0]),
    "the-same-view": (lambda x: x[1:].mul_(x[1:]), [0.0, 1.0, 4.0, 9.0]),
    "its-own-out": (lambda x: torch.add(x[1:], 1, out=x[1:]), [0.0, 2.0, 3.0, 4.0]),
    "beside-each-other": (lambda x: x[:2].copy_(x[2:]), [2.0, 3.0, 2.0, 3.0]),
    "with-gaps": (lambda x: x[::2].copy_(x[1::2]), [1.0, 1.0, 3.0, 3.0]),
    "augmented-item": (lambda x: x.__setitem__(slice(1, None), x[1:].add_(1)), [0.0, 2.0, 3.0, 4.0]),
    "masked_fill_": (lambda x: x.masked_fill_(x > 1, x[1]), [0.0, 1.0, 1.0, 1.0]),
    "a-detached-self": (lambda x: x.sub_(x.detach()), [0.0, 0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_memory_that_may_be_read_and_written(case: str):
    call, expected = ALLOWED[case]
    x = torch.arange(4.0)
    call(x)
    assert x.tolist() == expected


def test_an_expanded_tensor_can_be_filled_but_not_written_to():
    x = torch.zeros(1).expand(3)
    assert x.fill_(2.0).tolist() == [2.0, 2.0, 2.0] and x.zero_().tolist() == [0.0, 0.0, 0.0]
    for call in (lambda: x.copy_(torch.ones(3)), lambda: x.normal_(), lambda: torch.add(x, 1, out=x)):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            call()


def test_views_are_not_detached_in_place():
    base = torch.ones(3, requires_grad=True) * 2
    with torch.no_grad():
        apart = base[:2]
    for view in (base[:2], base.unbind()[0], torch.ones(3)[:2], apart):
        with pytest.raises(RuntimeError, match="Can't detach views in-place"):
            view.detach_()
    assert not base.detach_().requires_grad


@pytest.mark.parametrize(
    "name", ["flip", "permute", "expand", "repeat", "reshape", "view", "tile", "resize_", "sum_to_size"]
)
def test_sizes_and_dims_have_to_be_given(name: str):
    for x in (torch.ones(2, 3), torch.tensor(1.0)):
        with pytest.raises(TypeError, match="missing 1 required positional arguments"):
            getattr(x, name)()
    assert torch.ones(2).flip(()).tolist() == [1.0, 1.0]


def test_copies_of_views_go_into_out():
    x = torch.arange(6.0).reshape(2, 3)
    for written, out in (
        (lambda out: torch.alias_copy(x, out=out), torch.zeros(2, 3)),
        (lambda out: torch.as_strided_copy(x, (3, 2), (1, 3), out=out), torch.zeros(0)),
        (lambda out: torch.view_copy(x, (3, 2), out=out), torch.zeros(3, 2)),
        (lambda out: torch.t_copy(x, out=out), torch.zeros(3, 2)),
    ):
        assert written(out) is out and sorted(out.reshape(-1).tolist()) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    parts = [torch.zeros(2, 1), torch.zeros(2, 2)]
    torch.split_with_sizes_copy(x, [1, 2], 1, out=parts)
    assert [part.tolist() for part in parts] == [[[0.0], [3.0]], [[1.0, 2.0], [4.0, 5.0]]]
    rows = [torch.zeros(3), torch.zeros(3)]
    torch.unbind_copy(x, out=rows)
    assert [row.tolist() for row in rows] == x.tolist()
    with pytest.raises(RuntimeError, match="expected an out= argument of size 2, got size 1"):
        torch.unbind_copy(x, out=rows[:1])
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float"):
        torch.t_copy(x, out=torch.zeros(3, 2, dtype=torch.float64))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: torch.div(x, y, rounding_mode="floor", out=x),
        lambda x, y: torch.maximum(x, y, out=x),
        lambda x, y: torch.max(x, y, out=x),
        lambda x, y: torch.where(x > 0, x, y, out=x),
    ],
)
def test_an_operand_is_not_resized_to_hold_the_result(call: Callable[[Any, Any], Any]):
    x = torch.ones(3, 1)
    with pytest.raises(RuntimeError, match=r"output with shape \[3, 1\] doesn't match the broadcast shape"):
        call(x, torch.ones(1, 3))
    assert x.shape == (3, 1)


def test_what_changes_an_operand_may_be_written_into_it():
    x, places = torch.zeros(3), torch.tensor([0, 0, 2])
    assert torch.scatter_add(x, 0, places, torch.ones(3), out=x) is x and x.tolist() == [2.0, 0.0, 1.0]
    assert torch.index_add(x, 0, places, torch.ones(3), out=x).tolist() == [4.0, 0.0, 2.0]
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.scatter_add(x, 0, places[:2], x[:2], out=x)
