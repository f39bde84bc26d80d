"""Rarer options and methods of `fully_shard`: bits of DistributedDataParallel, and what PyTorch's do."""

import copy
import gc
import weakref

import pytest
from replicas import gradients, on_ranks, perceptron, ranks
from sharded import WIDTH, adamw, batch, build, digest, loss_of, sharded, trained

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.distributed.checkpoint as dcp
from ddpgrad import nn
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from ddpgrad.launcher import Checkpointer
from ddpgrad.nn.parallel import DistributedDataParallel as DDP


def columns(p: nn.Parameter) -> Shard | None:
    return Shard(-1) if p.ndim == 2 else None


def in_lists(model, **options):
    fully_shard([model.blocks[0], model.blocks[1]], **options)
    fully_shard([model.norm, model.blocks[2]], **options)
    return fully_shard(model, **options)


def prefetching(model, **options):
    sharded(model, **options)
    for one, other in zip(model.blocks, model.blocks[1:], strict=False):
        one.set_modules_to_forward_prefetch([other])
        other.set_modules_to_backward_prefetch([one])
    model.set_modules_to_forward_prefetch(list(model.blocks)[:2])
    model.set_unshard_in_backward(False)
    return model


WAYS = {
    "lists": lambda model: in_lists(model),
    "among two": lambda model: sharded(model, reshard_after_forward=2),
    "lists among two, checkpointed": lambda model: in_lists(model, reshard_after_forward=2),
    "columns": lambda model: sharded(model, shard_placement_fn=columns),
    "prefetch": lambda model: prefetching(model),
}


@pytest.mark.parametrize("way", WAYS)
def test_losses_norms_and_parameters_have_the_bits_of_ddp(way: str):
    options = {"clip": 0.1, "around": way.endswith("checkpointed")}
    expected = ranks(4, lambda: trained(False, **options))
    assert ranks(4, lambda: trained(True, wrap=WAYS[way], **options)) == expected


@pytest.mark.parametrize("option", ["columns", "among two"])
def test_replicas_have_the_bits_of_ddp(option: str):
    def program():
        mesh = dist.init_device_mesh("cpu", (2, 4))
        told = {"columns": {"shard_placement_fn": columns}, "among two": {"reshard_after_forward": 2}}[option]
        return trained(True, clip=0.1, wrap=lambda model: sharded(model, mesh=mesh, **told))

    assert ranks(8, program) == ranks(8, lambda: trained(False, clip=0.1))


@on_ranks(4)
def test_parameters_stay_among_few_ranks_until_backward():
    """Of four ranks two gather what forward had: each keeps a half of the parameters, not a quarter, and not all."""
    model = fully_shard(nn.Sequential(fully_shard(nn.Linear(64, 64), reshard_after_forward=2), nn.Tanh()))
    (group,) = model[0]._fsdp_state.groups
    held = []
    out = model(torch.ones(1, 64))
    held.append(group.memory is None and group._kept.size / group.whole_size)
    with torch.no_grad():
        model(torch.ones(1, 64))
    held.append(group._kept)
    out.sum().backward()
    assert [*held, group.memory, group._kept] == [0.5, None, None, None]


def test_a_group_of_several_modules_is_dropped_when_all_have_run():
    class Headed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 2)

        def forward(self, x, whole=True):
            h = self.norm(x)
            return self.head(h) if whole else h

    def program():
        model = Headed()
        assert fully_shard([model.norm, model.head])[0] is model.norm
        fully_shard(model)
        (group,) = model.head._fsdp_state.groups
        model.norm.register_forward_hook(lambda *_: seen.append(group.memory is not None))
        seen = []
        x = torch.arange(8.0).reshape(2, 4)
        expected = model(x)
        seen.append(group.memory is not None)
        # As losses by chunks do: forward runs a part, and the rest of the group is called after it.
        h = model(x, whole=False)
        seen.append(group.memory is not None)
        assert torch.allclose(torch.cat([model.head(part) for part in h.chunk(2)]), expected, atol=1e-6)
        model.head(h).sum().backward()
        assert model.head.bias.grad.full_tensor().tolist() == [2.0, 2.0]
        return seen

    assert ranks(2, program) == [[True, False, True, False]] * 2


def test_checkpoints_hold_columns_as_rows(tmp_path):
    def trained_once(wrap):
        model = wrap(build())
        optimizer = adamw(model.parameters())
        loss_of(model, batch()).backward()
        optimizer.step()
        return model, optimizer

    def saves():
        model, optimizer = trained_once(WAYS["columns"])
        assert model.blocks[0].mix.weight.placements == (Shard(1),)
        assert model.blocks[0].mix.weight.to_local().shape == (3 * WIDTH, WIDTH // 2)
        Checkpointer(tmp_path / "one").save(1, model=model, optimizer=optimizer)
        dcp.save({"model": model.state_dict()}, checkpoint_id=tmp_path / "two")
        return digest(model)

    def loads(wrap):
        def program():
            model = wrap(build())
            assert (
                Checkpointer(tmp_path / "one").resume(model=model, optimizer=adamw(model.parameters())) == 2
            )
            other = wrap(build())
            state = {"model": other.state_dict()}
            dcp.load(state, checkpoint_id=tmp_path / "two")
            return digest(model), digest(other)

        return program

    expected, _ = ranks(2, saves)
    for wrap, n in ((WAYS["columns"], 4), (sharded, 3)):
        assert ranks(n, loads(wrap)) == [(expected, expected)] * n


@on_ranks(2)
def test_dtensors_may_be_divided_by_columns():
    mesh = dist.init_device_mesh("cpu", (2,))
    value = torch.arange(24.0).reshape(3, 4, 2)
    x = distribute_tensor(value, mesh, [Shard(1)])
    assert x.to_local().tolist() == value.chunk(2, 1)[dist.get_rank()].tolist()
    rows = x.redistribute(placements=[Shard(-3)])
    assert rows.placements == (Shard(0),) and rows.redistribute(placements=[Shard(2)]).shape == (3, 4, 2)
    again = DTensor.from_local(x.to_local(), mesh, [Shard(1)])
    x.copy_(value * 2).mul_(0.5)
    for t in (x, rows, again, x.redistribute(placements=[Replicate()])):
        assert torch.equal(t.full_tensor(), value)
    assert distribute_tensor(torch.ones(2, 3), mesh, [Shard(1)]).to_local().shape == (2, 2 - dist.get_rank())
    with pytest.raises(IndexError, match="out of range"):
        distribute_tensor(torch.ones(2, 3), mesh, [Shard(2)])


def test_a_state_dict_may_be_assigned():
    """As models that are made on meta get their values: DTensors, parameters of these, or whole tensors."""

    def program():
        values = {name: value + 1 for name, value in perceptron().state_dict().items()}
        found = []
        for kind in (lambda v, p: distribute_tensor(v, p.device_mesh, p.placements), lambda v, p: v):
            with torch.device("meta"):
                model = fully_shard(perceptron())
            own = dict(model.named_parameters())
            state = {name: nn.Parameter(kind(v, own[name])) for name, v in values.items()}
            model.load_state_dict(state, assign=True)
            optimizer = adamw(model.parameters())
            model(torch.ones(1, 6)).sum().backward()
            optimizer.step()
            found.append(digest(model))
        model.load_state_dict(model.state_dict(), assign=True)  # later, too
        assert digest(model) == found[-1] and all(p.grad is None for p in model.parameters())
        model(torch.ones(1, 6)).sum().backward()
        plain = perceptron()
        plain.load_state_dict(values)
        ddp = DDP(plain)
        ddp(torch.ones(1, 6)).sum().backward()
        adamw(plain.parameters()).step()
        return {*found, digest(plain)}

    assert all(len(found) == 1 for found in ranks(2, program))


def test_a_parameter_may_be_replaced_by_a_dtensor_before_the_first_use():
    """As models on meta compute some of their parameters of others."""

    def program():
        with torch.device("meta"):
            model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
        fully_shard(model[0])
        fully_shard(model)
        model.to_empty(device="cpu")
        nn.init.constant_(model[0].weight, 0.5)
        with torch.no_grad():
            model[1].weight = nn.Parameter(model[0].weight * 2)
        loss = model(torch.ones(2, 3)).sum()
        loss.backward()
        return loss.item(), model[1].weight.grad.full_tensor().tolist()

    assert ranks(2, program) == [(27.0, [[3.0] * 3] * 3)] * 2


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.left, self.right = (nn.Linear(3, 3) for _ in range(3))

    def forward(self, x, left):
        return (self.left if left else self.right)(self.stem(x))


@pytest.mark.parametrize("alike", [False, True])
def test_ranks_may_use_different_parameters(alike: bool):
    """As under find_unused_parameters, but that what no rank uses gets zeros, as in PyTorch."""

    def program(divided):
        model = Branches()
        if divided:
            net = fully_shard(model)
            net.set_reduce_scatter_unused_params(True)
        else:
            net = DDP(model, find_unused_parameters=True)
        (net(torch.ones(2, 3), alike or dist.get_rank() == 0).sum()).backward()
        found = {}
        for name, p in model.named_parameters():
            grad = torch.zeros(p.shape) if p.grad is None else p.grad
            found[name] = (grad.full_tensor() if divided else grad).tolist()
        return found

    assert ranks(2, lambda: program(True)) == ranks(2, lambda: program(False))


def test_different_parameters_are_told_without_it():
    def program():
        fully_shard(model := Branches())
        model(torch.ones(2, 3), dist.get_rank() == 0).sum().backward()

    with pytest.raises(torch.errors.MismatchError, match=r"label stem.weight.*right.weight"):
        ranks(2, program)


@on_ranks(2)
def test_sums_are_divided_and_changed_as_told():
    model = perceptron()
    (model(torch.ones(1, 6)) * (1 + dist.get_rank())).sum().backward()
    own = gradients(model)
    net = fully_shard(perceptron())
    net.set_gradient_divide_factor(0.5)
    net.set_all_reduce_hook(lambda part: part.add_(1))
    (net(torch.ones(1, 6)) * (1 + dist.get_rank())).sum().backward()
    with pytest.raises(RuntimeError, match="set_gradient_divide_factor says another number"):
        net.loss_weight(2)
    for name, p in net.named_parameters():
        expected = own[name] / (1 + dist.get_rank()) * 3 / 0.5 + 1
        assert torch.allclose(p.grad.full_tensor(), torch.tensor(expected))


def test_a_step_that_raised_may_be_left_out():
    def program():
        model = perceptron()
        fully_shard(model[0])
        fully_shard(model)
        optimizer, raised = adamw(model.parameters()), 0
        plan = iter([1, 0, 1])
        model[1].register_forward_hook(
            lambda m, args, out: out.register_hook(lambda g: g * (1 / next(plan))) and None
        )
        for _ in range(3):
            out = model(torch.ones(1, 6))
            try:
                out.sum().backward()
                optimizer.step()
            except ZeroDivisionError:
                model.reset_iter_state()
                raised += 1
            optimizer.zero_grad()
        assert raised == 1
        return digest(model)

    def plain():
        model = perceptron()
        net, optimizer = DDP(model), adamw(model.parameters())
        for _ in range(2):
            net(torch.ones(1, 6)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return digest(model)

    assert ranks(2, program) == ranks(2, plain)


@on_ranks(2)
def test_slices_are_ordinary_modules_and_copies_are_refused():
    model = nn.Sequential(*[fully_shard(nn.Linear(3, 3)) for _ in range(3)])
    fully_shard(model)
    part = model[:2]
    assert type(part) is nn.Sequential and part[0] is model[0]
    with pytest.raises(TypeError, match="a FSDPSequential is not copied"):
        copy.deepcopy(model)
    known = weakref.ref(model)
    del model, part
    gc.collect()
    assert known() is None


@pytest.mark.parametrize(
    ("mistake", "error", "text"),
    [
        (lambda m: fully_shard(m, reshard_after_forward=3), ValueError, "it should be a factor of 4, not 3"),
        (lambda m: fully_shard(m, reshard_after_forward="all"), ValueError, "bool or an int .* not all"),
        (lambda m: fully_shard([]), ValueError, "got an empty list"),
        (lambda m: fully_shard([m[0], nn.ModuleList([m[2]])]), ValueError, "do not implement forward"),
        (lambda m: fully_shard(m, shard_placement_fn=lambda p: 1), ValueError, r"gave 1 for '0.weight'; expected"),
        (lambda m: fully_shard(m, shard_placement_fn=lambda p: Shard(p.ndim - 1)), NotImplementedError, "equal parts"),
        (lambda m: fully_shard([m[0], m[2]])[0](torch.ones(1, 6)), RuntimeError, "FSDPLinear, FSDPLinear. form one group"),
        (lambda m: fully_shard(m).set_modules_to_forward_prefetch([m[0]]), ValueError, "given to fully_shard, got Linear"),
        (lambda m: fully_shard(m).set_gradient_divide_factor(0), ValueError, "a number above 0, got 0"),
        (lambda m: fully_shard(m).set_reshard_after_forward(2), ValueError, "should be a bool, got int"),
    ],
)  # fmt: skip
@on_ranks(4)
def test_mistakes_are_told(mistake, error, text):
    with pytest.raises(error, match=text):
        mistake(perceptron())
