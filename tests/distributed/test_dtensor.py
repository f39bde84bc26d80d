"""Tensors of which each rank has a part: what programs compute of the parts, and of the whole."""

import copy
import io
import pickle

import pytest
from replicas import line, on_line, on_ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from ddpgrad.distributed.tensor._dtensor_spec import DTensorSpec

X = torch.arange(10.0).reshape(5, 2)


@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate()])
@on_ranks(2)
def test_gradients_of_parts_and_of_the_whole_are_those_of_the_tensor(placement):
    mesh = line()
    x = distribute_tensor(X, mesh, [placement]).requires_grad_()
    (2 * x.to_local()).sum().backward()
    (x.full_tensor() * X).sum().backward()
    assert (x.grad.placements, x.grad.shape) == (x.placements, x.shape)
    with torch.no_grad():
        assert not x.to_local().requires_grad
        assert not x.full_tensor().requires_grad
    assert x.grad.full_tensor().tolist() == (X + 2).tolist()


@on_ranks(2)
def test_a_penalty_on_parts_joins_the_averages_of_fully_shard():
    mesh = line()
    model = nn.Linear(2, 4)
    nn.init.constant_(model.weight, 0.5)
    fully_shard(model, mesh=mesh)
    weight = model.weight
    model(torch.ones(1, 2)).sum().backward()
    weight.to_local().pow(2).sum().backward()
    assert weight.grad.full_tensor().tolist() == [[2.0, 2.0]] * 4


@on_ranks(2)
def test_from_local_makes_alike_what_is_to_be():
    mesh = line()
    own = torch.full((2,), float(dist.get_rank() + 1))
    assert DTensor.from_local(own, mesh, run_check=True).to_local().tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("order", "expected"), [(1.0, 6.0), (float("inf"), 3.0), (3.0, 36.0 ** (1 / 3))])
@on_ranks(2)
def test_gradients_are_clipped_by_norms_of_any_order(order, expected):
    mesh = line()
    p = nn.Parameter(distribute_tensor(torch.zeros(3), mesh, [Shard(0)]))
    p.grad = distribute_tensor(torch.tensor([1.0, -2.0, 3.0]), mesh, [Shard(0)])
    assert nn.utils.clip_grad_norm_([p], 0.5, order).full_tensor().item() == pytest.approx(expected)
    assert p.grad.full_tensor()[2].item() == pytest.approx(3 * 0.5 / expected, rel=1e-5)


def test_pickles_files_and_deep_copies_have_this_ranks_part():
    def program(mesh):
        x = distribute_tensor(X, mesh, [Shard(0)]).requires_grad_()
        (x.to_local() * 2).sum().backward()
        weight = nn.Parameter(distribute_tensor(X, mesh, [Shard(1)]), requires_grad=False)
        file = io.BytesIO()
        torch.save({"x": x, "weight": weight}, file)
        file.seek(0)
        loaded = torch.load(file)
        for found, wanted in (
            (pickle.loads(pickle.dumps(x)), x),
            (loaded["x"], x),
            (loaded["weight"], weight),
            (copy.deepcopy(x), x),
        ):
            assert type(found) is type(wanted)
            assert found.placements == wanted.placements
            assert found.device_mesh == mesh
            assert found.requires_grad == wanted.requires_grad
            assert found.to_local().data_ptr() != wanted.to_local().data_ptr()
            assert torch.equal(found.full_tensor(), X)
        assert torch.equal(copy.deepcopy(x).grad.full_tensor(), torch.full((5, 2), 2.0))
        with pytest.raises(RuntimeError, match="graph leaves"):
            copy.deepcopy(x * 2)
        return pickle.dumps(x)

    saved = on_line(2, program)

    def of_the_other(mesh):
        with pytest.raises(ValueError, match="loads the file that it saved itself"):
            pickle.loads(saved[1 - dist.get_rank()])

    on_line(2, of_the_other)


@pytest.mark.parametrize(
    ("placement", "grad_placement", "expected"),
    [(Partial(), None, [2.0, 2.0]), (Replicate(), Partial(), [2.0, 0.0]), (Shard(0), Shard(0), [2.0, 2.0])],
)
@on_ranks(2)
def test_the_gradient_of_from_local_lies_as_told(placement, grad_placement, expected):
    own = torch.ones(3, requires_grad=True)
    grads = None if grad_placement is None else [grad_placement]
    x = DTensor.from_local(own, line(), [placement], grad_placements=grads)
    (x * 2).redistribute(placements=[Replicate()]).to_local().sum().backward()
    assert own.grad[0].item() == expected[dist.get_rank()]


@on_ranks(2)
def test_from_local_refuses_a_dtensor_and_a_dimension_that_is_not_there():
    mesh = line()
    with pytest.raises(RuntimeError, match=r"only accepts torch.Tensor"):
        DTensor.from_local(distribute_tensor(X, mesh), mesh)
    with pytest.raises(RuntimeError, match="Sharding dim 2 greater than tensor ndim 2"):
        DTensor.from_local(X, mesh, [Shard(2)])


@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate()])
def test_numbers_drawn_by_what_a_dtensor_says_are_those_of_one_rank(placement):
    def drawn(x):
        torch.manual_seed(0)
        return (
            torch.bernoulli(x),
            torch.poisson(x),
            torch.multinomial(x, 1),
            torch.zeros_like(x).bernoulli_(x),
            torch.rand_like(x),
            torch.randn_like(x, dtype=torch.float64),
            torch.randint_like(x, 3, 99),
        )

    chances = torch.rand(4, 2)

    def program(mesh):
        dist.tensor._random.manual_seed(0, mesh)
        normal = dist.tensor.randn(4, 2, device_mesh=mesh, placements=[placement]).full_tensor()
        torch.manual_seed(0)
        assert torch.equal(normal, torch.randn(4, 2))
        found = drawn(distribute_tensor(chances, mesh, [placement]))
        assert [t.placements for t in found] == [
            (placement,),
            (placement,),
            (Replicate() if placement == Shard(1) else placement,),
            *[(placement,)] * 4,
        ]
        return [t.full_tensor().tolist() for t in found]

    assert on_line(2, program) == [[t.tolist() for t in drawn(chances)]] * 2


@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate()])
@pytest.mark.parametrize(
    ("change", "strides"),
    [
        (lambda x: x.transpose(0, 1), (3, 6, 1)),
        (lambda x: x.transpose(0, 1).contiguous(), (12, 3, 1)),
        (lambda x: x.movedim(0, 2), (3, 1, 6)),
        (lambda x: x.unsqueeze(0).expand(2, 4, 2, 3), (0, 6, 3, 1)),
        (lambda x: x[..., 0], (6, 3)),
    ],
)
@on_ranks(2)
def test_strides_are_those_of_the_whole(placement, change, strides):
    mesh = line()
    found = change(distribute_tensor(torch.zeros(4, 2, 3), mesh, [placement]))
    assert (found.stride(), found.is_contiguous()) == (strides, strides == (12, 3, 1))


@on_ranks(2)
def test_a_spec_says_how_a_dtensor_lies_and_makes_another():
    mesh = line()
    x = distribute_tensor(X, mesh, [Shard(0)])
    spec = x._spec
    assert (spec.shape, spec.stride, spec.tensor_meta.dtype) == ((5, 2), (2, 1), torch.float32)
    assert (spec.num_shards, spec.num_shards_map, spec.dim_map, spec.sums) == (2, [2, 1], [0, -1], [])
    assert spec.is_sharded() and not spec.is_replicated()
    assert spec == distribute_tensor(X, mesh, [Shard(0)])._spec != distribute_tensor(X, mesh)._spec
    assert hash(spec) == hash(distribute_tensor(X, mesh, [Shard(0)])._spec)
    assert DTensorSpec.from_dim_map(mesh, [0, -1], [], spec.tensor_meta) == spec
    again = DTensor(x.to_local(), spec, requires_grad=True)
    assert again.is_leaf and again.requires_grad
    assert again.to_local().data_ptr() == x.to_local().data_ptr()
    assert torch.equal(again.full_tensor(), X)
    with pytest.raises(ValueError, match="a part of shape"):
        DTensor(torch.zeros(9, 2), spec, requires_grad=False)
    with pytest.raises(ValueError, match="tensor_meta is not set"):
        DTensorSpec(mesh, (Shard(0),)).shape  # noqa: B018


@pytest.mark.parametrize(
    "gradient", [lambda mesh: X.clone(), lambda mesh: distribute_tensor(X, mesh, [Shard(1)])]
)
@on_ranks(2)
def test_a_gradient_that_is_assigned_lies_as_the_leaf(gradient):
    mesh = line()
    x = distribute_tensor(torch.zeros(5, 2), mesh, [Shard(0)]).requires_grad_()
    x.grad = gradient(mesh)
    assert x.grad.placements == (Shard(0),)
    torch.optim.SGD([x], lr=1.0).step()
    assert x.full_tensor().tolist() == (-X).tolist()
