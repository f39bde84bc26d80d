"""What is a view and what a copy, and which views may not be written to."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad.ops.dispatch.declare import OPS

Tensor = torch.Tensor


def test_what_is_a_view():
    x = torch.arange(24.0).reshape(2, 3, 4)
    base = x._base
    for view in (
        x[0], x[0, 1, 2], x[...], x[:, None], x[torch.tensor(1)], x.t() if x.ndim == 2 else x.transpose(0, 1),
        x.view(6, 4), x.reshape(-1), x.flatten(1), x.squeeze(), x.unsqueeze(0), x.expand(5, 2, 3, 4), x.narrow(2, 1, 2),
        x.split(1)[0], x.chunk(2, 1)[1], x.unbind()[0], x.select(1, 0), x.movedim(0, 2), x.permute(2, 0, 1),
        x.diagonal(), x.unfold(2, 2, 1), x.as_strided((2, 2), (1, 3), 2), x.tensor_split(2, 2)[1], x.hsplit(3)[1], x.mT,
        x.unflatten(2, (2, 2)), x.swapaxes(0, 2), torch.broadcast_to(x, (2, 2, 3, 4)), x.expand_as(x), x.view_as(x),
    ):  # fmt: skip
        assert view._base is base, "views of views share one base"
        assert np.shares_memory(view.numpy(), x.numpy())
    copies = (
        x[[0]], x[x > 3], x.transpose(0, 1).reshape(-1), x.clone(), x.flip(0), x.roll(0, 0), x.repeat(1, 1, 1), x.tril(9),
    )  # fmt: skip
    for copy in copies:
        assert not copy._is_view()
        assert not np.shares_memory(copy.numpy(), x.numpy())


# Casts and copies into order are only called where they change something.
COPIES = {op.name for op in OPS.values() if op.samples and not op.view} - {"cast", "to_contiguous"}


def to_tensors(value: Any) -> Any:
    if isinstance(value, list):
        return [to_tensors(v) for v in value]
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("name", sorted(COPIES))
def test_only_views_share_memory(name: str):
    op = OPS[name]
    for args, kwargs in op.samples(np.random.default_rng(0)):
        tensors = [to_tensors(a) for a in (*args, *kwargs.values())]
        out = op.call(*tensors[: len(args)], **dict(zip(kwargs, tensors[len(args) :], strict=True)))
        for result in out if isinstance(out, tuple) else (out,):
            for array in (a for a in (*args, *kwargs.values()) if isinstance(a, np.ndarray)):
                assert not np.shares_memory(result.numpy(), array)


def test_elements_are_views():
    x = torch.zeros(3)
    x[1].add_(5)
    list(x)[2].fill_(7)
    assert x.tolist() == [0.0, 5.0, 7.0]


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda x: x.add_(1), "a leaf Variable that requires grad"),
        (lambda x: x[0].zero_(), "a view of a leaf Variable that requires grad"),
        (
            lambda x: torch.zeros(4).view(2, 2).requires_grad_().t().mul_(2),
            "a view of a leaf Variable that requires grad",
        ),
        (lambda x: x.__setitem__(0, 1.0), "a leaf Variable that requires grad"),
        (lambda x: no_grad_view(x).add_(1), "A view was created in no_grad mode"),
        (lambda x: no_grad_view(x * 1).add_(1), "A view was created in no_grad mode"),
        (lambda x: x.detach().expand(2, 3).add_(1), "more than one element .* single memory location"),
        (
            lambda x: torch.arange(3).add_(1.5),
            "result type float32 can't be cast to the desired output type int64",
        ),
        (
            lambda x: (x * 1).split(1)[0].zero_(),
            "Output 0 of SplitBackward0 is a view and is being modified inplace",
        ),
        (lambda x: (x * 1).unbind()[1][...].zero_(), "is a view .* multiple views"),
        (lambda x: x.unsqueeze_(0), "a leaf Variable that requires grad"),
        (lambda x: torch.arange(3).div_(2), "can't be cast"),
        (
            lambda x: torch.ones(3).add_(torch.ones(2, 3)),
            r"output with shape \[3\] doesn't match .* \[2, 3\]",
        ),
    ],
)
def test_refusals(write: Callable[[Tensor], object], text: str):
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match=text):
        write(x)
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_new_tensors_lie_in_the_order_of_their_dimensions():
    x = torch.rand(3, 4).t()
    made = [
        torch.cat([x, x]),
        torch.stack([x, x]),
        x.roll(1, 0),
        x.cumsum(0),
        x.cumprod(1),
        torch.cat([x[:1].expand(4, 3)] * 2),
    ]
    assert all(y.is_contiguous() for y in made)
    large = torch.rand(600, 700).t()
    assert torch.cat([large, large]).is_contiguous()
    images = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert torch.cat([images, images]).is_contiguous(memory_format=torch.channels_last)
    assert torch.cat([images, images.contiguous()]).is_contiguous()
    rows = torch.rand(40, 5, 60)
    chosen = [
        rows.median(1),
        rows.nanmedian(0),
        rows.kthvalue(2, 1, keepdim=True),
        rows.topk(2, 0),
        rows.mode(0),
    ]
    for found in chosen:
        assert found.values.is_contiguous() and found.indices.is_contiguous()


def test_what_is_turned_or_sorted_lies_as_before():
    images = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    made = [images.flip(0, 3), *images.sort(1), images.argsort(0), torch.complex(images, images)]
    assert [y.stride() for y in made] == [(60, 1, 15, 3)] * 5


def test_one_node_for_all_parts():
    x = torch.ones(6, requires_grad=True)
    parts = (x * 1).split(2)
    assert len({id(p.grad_fn) for p in parts}) == 1 and [p.output_nr for p in parts] == [0, 1, 2]
    parts[1].sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]


def test_parts_may_be_written_to_without_grad():
    x = torch.zeros(4)
    for i, part in enumerate(x.split(2)):
        part.fill_(i + 1)
    assert x.tolist() == [1.0, 1.0, 2.0, 2.0]


def test_memory_under_views():
    x = torch.arange(12.0).reshape(3, 4)
    view = x[1:, 2:]
    assert (view.storage_offset(), view.stride()) == (6, (4, 1))
    assert view.untyped_storage() == x.untyped_storage() and x.untyped_storage().nbytes() == 48
    with pytest.raises(RuntimeError, match="out of bounds for storage of 12 elements"):
        x.as_strided((4, 4), (4, 1), 0)
    assert x.view(torch.int32).dtype is torch.int32 and x.view(torch.float64).shape == (3, 2)
    assert torch.empty(2).set_(x, 1, (2,), (2,)).tolist() == [1.0, 3.0]
    assert x.clone().resize_(2, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]]


@pytest.mark.parametrize(
    ("kind", "x", "text"),
    [
        (torch.float64, torch.rand(4, 4)[:, 1:3], r"storage_offset\(\) must be divisible by 2 .* but got 1"),
        (torch.int32, torch.arange(8, dtype=torch.uint8)[1:5], "must be divisible by 4"),
        (torch.float64, torch.rand(9).as_strided((2, 2), (3, 1)), r"stride\(0\) must be divisible by 2"),
        (torch.float64, torch.rand(4, 4)[:, ::2], r"stride\(-1\) must be 1 .* but got 2"),
        (None, torch.rand(5)[1:].view(2, 2), "storage_offset divisible by 2"),
        (None, torch.rand(3, 5)[:, :2], "stride divisible by 2"),
        (None, torch.rand(2, 3).t(), "last dimension with stride 1"),
    ],
)
def test_memory_that_cannot_be_read_as(kind: Any, x: Tensor, text: str):
    """Larger elements, or complex numbers, must begin where their memory has room for whole ones."""
    with pytest.raises(RuntimeError, match=text):
        torch.view_as_complex(x) if kind is None else x.view(kind)


def test_resize_in_a_memory_format():
    images, last = torch.arange(16.0), torch.channels_last
    assert images.resize_(1, 2, 2, 4, memory_format=last).stride() == (16, 1, 8, 2)
    assert images[0, 1].tolist() == [[1.0, 3.0, 5.0, 7.0], [9.0, 11.0, 13.0, 15.0]]
    assert torch.rand(3).resize_as_(images).is_contiguous()
    assert (
        torch.rand(3)
        .resize_as_(images, memory_format=torch.preserve_format)
        .is_contiguous(memory_format=last)
    )
    with pytest.raises(RuntimeError, match="required rank 4 tensor"):
        images.resize_(2, memory_format=last)
    with pytest.raises(RuntimeError, match="Unsupported memory format"):
        images.resize_(2, memory_format=torch.preserve_format)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.view(3, 5.0),
        lambda x: x.reshape(15.7),
        lambda x: x.reshape("a"),
        lambda x: x.expand(2, 15.5),
        lambda x: x.repeat(2.5),
        lambda x: x.tile(2.5),
        lambda x: x.as_strided((2.5,), (1,)),
        lambda x: x.split([7.5, 7.5]),
        lambda x: x.resize_(2.5),
    ],
)
def test_sizes_are_whole_numbers(call: Callable[[Tensor], object]):
    with pytest.raises(TypeError, match=r"\b(float|str)\b"):
        call(torch.rand(15))


def test_shapes_that_cannot_be_broadcast():
    assert torch.broadcast_shapes(2, (3, 1), [1]) == (3, 2)
    with pytest.raises(ValueError, match="negative length"):
        torch.broadcast_shapes((-1,), 2)
    with pytest.raises(RuntimeError, match="should be of type ints"):
        torch.broadcast_shapes(1.5)


def test_transposes_of_a_number():
    x = torch.tensor(2 + 1j)
    for name, value in {"T": 2 + 1j, "mT": 2 + 1j, "H": 2 - 1j, "mH": 2 - 1j}.items():
        with pytest.warns(UserWarning, match=f"Tensor.{name} is deprecated on 0-D"):
            assert getattr(x, name).item() == value
    with pytest.warns(UserWarning, match="deprecated on 0-D"):
        assert x.adjoint().item() == 2 - 1j


def no_grad_view(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x[:2]


x3 = torch.rand(4, 5, 6).transpose(1, 2)
IN_ORDER: dict[str, Callable[[], Tensor]] = {
    **{
        name: lambda name=name: getattr(x3, name)(0) for name in ("sum", "mean", "amax", "std", "all", "norm")
    },
    "keepdim": lambda: x3.sum(0, keepdim=True),
    "moments": lambda: torch.var_mean(x3, 0)[1],
    "repeat": lambda: x3.repeat(2, 1, 1),
    "triu": lambda: x3.triu(),
    "scatter": lambda: x3.scatter_add(0, torch.zeros(4, 6, 5, dtype=torch.int64), torch.ones(4, 6, 5)),
    "topk": lambda: torch.rand(5, 10, 5).topk(3, dim=1).indices,
    "repeated": lambda: torch.rand(1, 3).expand(4, 3).clone(),
    "repeated-like": lambda: torch.zeros_like(torch.rand(5, 1, 3).expand(5, 4, 3)),
    "repeated-cast": lambda: torch.rand(1, 3).expand(4, 3).double(),
    "repeated-many": lambda: torch.rand(1, 300).expand(400, 300).half(),
}


@pytest.mark.parametrize("case", IN_ORDER)
def test_results_that_lie_in_order_whatever_the_input_does(case: str):
    out = IN_ORDER[case]()
    assert out.is_contiguous() and out.view(-1).tolist() == out.flatten().tolist()


def test_views_that_are_refused_or_empty():
    assert torch.empty(0, 6, 2).unflatten(-2, (-1, 3)).shape == (0, 2, 3, 2)
    assert torch.empty(0, 5).as_strided((5, 0), (1, 1)).shape == (5, 0)
    for call in (
        lambda: torch.empty(3, 0).unflatten(1, (0, -1)),
        lambda: torch.tensor(1.0).expand(-1),
        lambda: torch.view_as_complex(torch.ones(3, 3).as_strided((2, 2), (1, 1))),
    ):
        with pytest.raises(RuntimeError):
            call()


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.kthvalue(1, 1)[0],
        lambda x: x.median(1).indices,
        lambda x: torch.multinomial(x[0] + 1, 2),
        lambda x: torch.permute_copy(x, (2, 0, 1)),
        lambda x: torch.unfold_copy(x, 0, 2, 1),
        lambda x: torch.nn.functional.conv_transpose1d(
            x.cfloat(), torch.ones(3, 2, 3, dtype=torch.cfloat), padding=1
        ),
    ],
    ids=["kthvalue", "median", "multinomial", "permute_copy", "unfold_copy", "conv_transpose1d"],
)
def test_results_have_memory_of_their_own_and_no_more(make: Callable[[torch.Tensor], torch.Tensor]):
    out = make(torch.arange(24.0).reshape(2, 3, 4))
    assert out.is_contiguous() and out.untyped_storage().nbytes() == out.nbytes


@pytest.mark.parametrize(
    "make",
    [lambda x: x.masked_scatter(x > 0, x), lambda x: x.norm(), lambda x: x.dist(x * 0)],
    ids=["masked_scatter", "norm", "dist"],
)
def test_results_of_a_number_are_no_views(make: Callable[[torch.Tensor], torch.Tensor]):
    x = torch.tensor(3.0)
    out = make(x).detach_()
    assert out.fill_(7) == 7 and x == 3


def test_what_an_iteration_gives_are_views_of_one_op():
    rows = list(torch.ones(3, 2, requires_grad=True) * 2)
    assert {row.grad_fn.name() for row in rows} == {"UnbindBackward0"}
    with pytest.raises(RuntimeError, match="view"):
        rows[0].mul_(3)
