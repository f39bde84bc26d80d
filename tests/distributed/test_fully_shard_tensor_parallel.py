"""`fully_shard` of models that tensor parallelism has divided already, on another dimension of the same mesh."""

import copy
from functools import cache

import pytest
from replicas import on_ranks, ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.distributed.checkpoint as dcp
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed._composable import replicate
from ddpgrad.distributed._composable.replicate_with_fsdp import replicate as keep_replicas
from ddpgrad.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from ddpgrad.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from ddpgrad.distributed.tensor.placement_types import _StridedShard
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(0)
WORDS = torch.arange(24).reshape(4, 6) * 3 % 10
PLAN = {
    "0": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "1": SequenceParallel(),
    "2": ColwiseParallel(input_layouts=Shard(1)),
    "4": RowwiseParallel(),
}


def built():
    parts = [nn.Embedding(10, 6), nn.LayerNorm(6), nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 10)]
    return nn.Sequential(*parts)


MODEL = built()


def divided(mesh, model=None):
    model = parallelize_module(copy.deepcopy(MODEL) if model is None else model, mesh["tp"], PLAN)
    over = mesh[mesh.mesh_dim_names[:-1]]
    fully_shard(model[2], mesh=over)
    return fully_shard(model, mesh=over)


def trained(model, words, clips=True):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    found = []
    for step in range(2):
        optimizer.zero_grad()
        loss = F.cross_entropy(model((words + step) % 10).flatten(0, 1), words.flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1) if clips else loss.detach()
        optimizer.step()
        found.append(torch.stack([loss.detach(), norm.full_tensor() if isinstance(norm, DTensor) else norm]))
    return found


@cache
def one_rank():
    """The model that one rank has trained, and its losses and norms."""
    model = copy.deepcopy(MODEL)
    return model, trained(model, WORDS)


def assert_like_one_rank(model):
    for found, wanted in zip(model.parameters(), one_rank()[0].parameters(), strict=True):
        torch.testing.assert_close(found.full_tensor(), wanted.detach(), rtol=1e-5, atol=1e-5)


def named(shape):
    return dist.init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard", "tp")[-len(shape) :])


@pytest.mark.parametrize("shape", [(2, 2), (1, 2), (4, 1), (2, 1, 2), (1, 2, 2)])
def test_two_steps_are_those_of_one_rank(shape):
    def program():
        mesh = named(shape)
        model = divided(mesh)
        first = (Replicate(),) * (len(shape) - 2)
        strided = _StridedShard(0, split_factor=shape[-1]) if shape[-1] > 1 else Shard(0)
        assert model[1].weight.placements == (*first, Shard(0), Replicate())
        assert model[2].weight.placements == (*first, strided, Shard(0))
        assert model[4].weight.placements == (*first, Shard(0), Shard(1))
        assert model[2].weight.device_mesh == mesh
        parts = WORDS.chunk(dist.get_world_size() // shape[-1])
        steps = trained(model, parts[dist.get_rank() // shape[-1]])
        assert_like_one_rank(model)
        return steps

    found = ranks(torch.tensor(shape).prod().item(), program)
    for step, wanted in enumerate(one_rank()[1]):
        of_ranks = torch.stack([steps[step] for steps in found])
        torch.testing.assert_close(of_ranks.mean(0), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tensor_parallel", [False, True])
def test_replicas_of_whole_parameters_train_as_one_rank(tensor_parallel):
    def program():
        mesh = named((2, 2))["shard"] if tensor_parallel else dist.init_device_mesh("cpu", (4,))
        model = copy.deepcopy(MODEL)
        if tensor_parallel:
            parallelize_module(model, named((2, 2))["tp"], PLAN)
        keep_replicas(model[2], mesh=mesh)
        keep_replicas(model, mesh=mesh)
        assert type(model).__name__ == "ReplicateSequential" and type(model[:1]) is nn.Sequential
        weight = model[2].weight
        assert weight.placements == (Replicate(), *(Shard(0),) * tensor_parallel)
        assert tensor_parallel or weight.device_mesh == mesh
        found = trained(model, WORDS.chunk(mesh.size())[mesh.get_local_rank()])
        assert weight.grad.placements == weight.placements
        assert_like_one_rank(model)
        return found

    found = ranks(4, program)
    for step, wanted in enumerate(one_rank()[1]):
        torch.testing.assert_close(
            torch.stack([f[step] for f in found]).mean(0), wanted, rtol=1e-5, atol=1e-6
        )


@on_ranks(4)
def test_replicate_takes_a_mesh_of_one_dimension():
    with pytest.raises(ValueError, match="1D DeviceMesh"):
        keep_replicas(nn.Linear(1, 1), mesh=named((2, 2)))


@pytest.mark.parametrize("wrap", [DDP, replicate])
def test_ddp_averages_parts_that_tensor_parallelism_has_made(wrap):
    expected = [loss.item() for loss, _ in trained(copy.deepcopy(MODEL), WORDS, clips=False)]

    def program():
        mesh = named((2, 2))
        model = wrap(parallelize_module(copy.deepcopy(MODEL), mesh["tp"], PLAN), device_mesh=mesh["shard"])
        part = getattr(model, "module", model)[2].weight
        assert (type(part), part.shape) == (nn.Parameter, (5, 6))
        return [loss.item() for loss, _ in trained(model, WORDS.chunk(2)[dist.get_rank() // 2], clips=False)]

    for found, wanted in zip(zip(*ranks(4, program), strict=True), expected, strict=True):
        assert sum(found) / 4 == pytest.approx(wanted, rel=1e-5)


@on_ranks(4)
def test_states_go_between_meshes_and_one_rank(tmp_path):
    mesh = named((2, 2))
    model = divided(mesh, copy.deepcopy(one_rank()[0]))
    dcp.save(get_model_state_dict(model), checkpoint_id=tmp_path / "divided")
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    for name, wanted in one_rank()[0].state_dict().items():
        assert torch.equal(whole[name], wanted)
    for other in (named((1, 4)), named((2, 1, 2))):
        again = divided(other)
        state = get_model_state_dict(again)
        dcp.load(state, checkpoint_id=tmp_path / "divided")
        set_model_state_dict(again, state)
        assert_like_one_rank(again)
    again = divided(mesh)
    given = whole if dist.get_rank() == 0 else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(again, given, options=options)
    assert_like_one_rank(again)


@on_ranks(4)
def test_a_mesh_that_has_divided_a_parameter_is_refused():
    mesh = named((2, 2))
    model = parallelize_module(copy.deepcopy(MODEL), mesh["tp"], PLAN)
    for same, why in ((mesh["tp"], "sharded already"), (mesh, "another dim"), (None, "another dim")):
        with pytest.raises(RuntimeError, match=f"parameter '0.weight' is .*{why}"):
            fully_shard(model, mesh=same)


@pytest.mark.parametrize("rows", [12, 7, 3])
@pytest.mark.parametrize(
    "target",
    [
        (Replicate(), Replicate()),
        (Replicate(), Shard(0)),
        (Shard(0), Shard(0)),
        (Shard(1), Shard(0)),
        (Shard(0), Replicate()),
    ],
)
def test_what_an_earlier_dimension_of_the_mesh_divides_last_is_moved(rows, target):
    whole = torch.arange(rows * 4.0).reshape(rows, 4)

    def program():
        mesh = dist.init_device_mesh("cpu", (2, 2))
        strided = (_StridedShard(0, split_factor=2), Shard(0))
        x = distribute_tensor(whole, mesh, strided)
        column, row = mesh.get_coordinate()
        half = whole.chunk(2)[row]
        parts = half.chunk(2)
        assert torch.equal(x.to_local(), parts[column] if column < len(parts) else half[:0])
        there = x.redistribute(placements=target)
        assert torch.equal(there.to_local(), distribute_tensor(whole, mesh, target).to_local())
        assert torch.equal(there.redistribute(placements=strided).to_local(), x.to_local())
        doubled = x * 2
        assert doubled.placements == strided
        assert torch.equal(doubled.full_tensor(), whole * 2)
        assert torch.equal((x + there).full_tensor(), whole * 2)
        assert torch.equal(x.t().full_tensor(), whole.t())
        assert torch.equal((x @ there.t()).full_tensor(), whole @ whole.t())

    ranks(4, program)


@on_ranks(2)
def test_a_split_factor_that_no_later_dimension_gives_is_refused():
    mesh = dist.init_device_mesh("cpu", (2, 1))
    with pytest.raises(NotImplementedError, match="split factor 2"):
        distribute_tensor(torch.zeros(4), mesh, (_StridedShard(0, split_factor=2), Shard(0)))
