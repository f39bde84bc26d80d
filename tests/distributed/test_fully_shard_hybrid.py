"""`fully_shard` on meshes of two dimensions: the bits of DistributedDataParallel over all ranks, whatever the grid."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replicas import Words, on_ranks, ranks
from sharded import CASES, adamw, batch, build, digest, loss_of, sharded, trained
from test_accumulate import trained as accumulated
from test_fsdp1 import POLICIES, assert_same, by_ddp, by_fsdp
from test_fully_shard_steps import network

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.distributed.checkpoint as dcp
from ddpgrad import nn
from ddpgrad.distributed.device_mesh import DeviceMesh, init_device_mesh
from ddpgrad.distributed.fsdp import FullyShardedDataParallel as FSDP
from ddpgrad.distributed.fsdp import MixedPrecisionPolicy, ShardingStrategy, fully_shard
from ddpgrad.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from ddpgrad.launcher import Checkpointer
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

NAMES = ("replicate", "shard")


def grid(replicas: int, shards: int, device: str = "cpu") -> DeviceMesh:
    return init_device_mesh(device, (replicas, shards), mesh_dim_names=NAMES)


@pytest.mark.parametrize(
    ("case", "shape"),
    [
        *((case, (2, 2)) for case in ("adamw", "sgd, clipped", "accumulated", "checkpointed around")),
        *(("sgd, clipped", shape) for shape in ((2, 3), (3, 2), (1, 4), (4, 1))),
    ],
)
def test_losses_norms_and_parameters_have_the_bits_of_ddp(case: str, shape: tuple[int, int], device: str):
    n = shape[0] * shape[1]
    expected = ranks(n, lambda: trained(False, device=device, **CASES[case]))
    assert (
        ranks(n, lambda: trained(True, mesh=grid(*shape, device), device=device, **CASES[case])) == expected
    )


def test_any_grid_and_16_bits_have_the_bits_of_one_dimension():
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16)

    def program(rows: Any):
        mesh = None if rows is None else DeviceMesh("cpu", rows)
        return trained(True, mesh=mesh, mp_policy=policy)

    expected = ranks(6, lambda: program(None))
    grids = (
        [[0, 1, 2], [3, 4, 5]],
        [[0, 2, 4], [1, 3, 5]],
        [[0, 1, 3], [2, 4, 5]],
        [[0, 1], [2, 3], [4, 5]],
        [5, 3, 1, 0, 2, 4],
    )
    for rows in grids:
        assert ranks(6, lambda rows=rows: program(rows)) == expected


def test_a_part_of_the_world_may_be_the_grid():
    def program():
        if dist.get_rank() == 0:
            assert dist.DeviceMesh("cpu", [[1, 2], [3, 4]]).get_coordinate() is None
            return None
        mesh = dist.DeviceMesh("cpu", [[1, 2], [3, 4]], mesh_dim_names=NAMES)
        model = fully_shard(build(), mesh=mesh)
        torch.manual_seed(dist.get_rank())
        loss_of(model, torch.randint(0, 33, (2, 7))).backward()
        return [p.grad.full_tensor().numpy().tobytes() for p in model.parameters()]

    def plain():
        model = DDP(build())
        torch.manual_seed(dist.get_rank() + 1)
        loss_of(model, torch.randint(0, 33, (2, 7))).backward()
        return [p.grad.numpy().tobytes() for p in model.parameters()]

    assert ranks(5, program)[1:] == ranks(4, plain)


def test_micro_batches_have_the_bits_of_ddp():
    expected = accumulated(DDP, network, 1, 8)
    for k, shape in ((2, (2, 2)), (1, (2, 4))):
        found = accumulated(lambda m, s=shape: fully_shard(m, mesh=grid(*s)), network, shape[0] * shape[1], k)
        assert found[1] == expected[1]
        assert all(map(np.array_equal, found[0], expected[0]))


def test_checkpoints_hold_rows_once_and_go_on_at_any_number_of_ranks(tmp_path: Path):
    def steps(mesh: Any, before: int = 0, after: int = 0, how: str = "") -> Any:
        model = sharded(build(), mesh=mesh).eval() if mesh != "ddp" else DDP(build()).eval()
        optimizer = adamw(model.parameters())

        def step(count: int) -> None:
            for _ in range(count):
                loss_of(model, batch()).backward()
                optimizer.step()
                optimizer.zero_grad()

        step(before)
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        if how == "save":
            Checkpointer(tmp_path / "a").save(1, model=model, optimizer=optimizer)
            dcp.save(states, checkpoint_id=tmp_path / "b")
        elif how == "a":
            assert Checkpointer(tmp_path / "a").resume(model=model, optimizer=optimizer) == 2
        elif how == "b":
            step(1)  # so that the optimizer has a state to load into
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            dcp.load(states, checkpoint_id=tmp_path / "b")
            model.load_state_dict(states["model"])
            optimizer.load_state_dict(states["optimizer"])
        found = digest(model)
        step(after)
        return found, digest(model)

    then, _ = ranks(4, lambda: steps(grid(2, 2), before=2, how="save"))[0]
    _, end = ranks(4, lambda: steps(grid(2, 2), before=3))[0]
    for how in "ab":
        assert ranks(4, lambda how=how: steps(grid(2, 2), after=1, how=how)) == [(then, end)] * 4
        assert ranks(4, lambda how=how: steps(None, after=1, how=how)) == [(then, end)] * 4
        for n, mesh in ((6, lambda: grid(2, 3)), (3, lambda: None)):
            found = ranks(n, lambda m=mesh, how=how: steps(m(), how=how))
            assert found == [(then, then)] * n
    sizes = [p.stat().st_size for p in sorted((tmp_path / "b").glob("*.distcp"))]
    assert len(sizes) == 4 and max(sizes) < 2 * min(
        sizes
    )  # of replicas one writes the rows, each about as many
    whole = build()
    whole.load_state_dict(Checkpointer(tmp_path / "a").read("model"))
    assert digest(whole) == then


@pytest.mark.parametrize("policy", ["the whole", "classes"])
@pytest.mark.parametrize("strategy", [ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2])
def test_fsdp1_shards_within_groups_and_replicates_between_them(policy: str, strategy: ShardingStrategy):
    def program(by_groups: bool):
        mesh = None if by_groups else grid(2, 2)
        groups = None
        if by_groups:
            shard, _ = dist.new_subgroups(2)
            groups = shard, dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])[0]
        model, _, told = by_fsdp(
            auto_wrap_policy=POLICIES[policy],
            sharding_strategy=strategy,
            device_mesh=mesh,
            process_group=groups,
        )
        p = next(model.parameters())
        assert p.placements == (Replicate(), Shard(0)) and p.device_mesh.shape == (2, 2)
        return told, {name: t.numpy().copy() for name, t in model.state_dict().items()}

    expected = ranks(4, by_ddp)
    for by_groups in (False, True):
        for (told, state), (other, theirs) in zip(
            ranks(4, lambda g=by_groups: program(g)), expected, strict=True
        ):
            assert told == other
            assert_same(state, theirs)


def test_meshes_have_lines_groups_and_places():
    def program():
        rank, mesh = dist.get_rank(), grid(2, 3)
        assert (mesh.ndim, mesh.shape, mesh.size(), mesh.size(1)) == (2, (2, 3), 6, 3)
        assert mesh.mesh_dim_names == NAMES and mesh.mesh.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert mesh.get_coordinate() == (rank // 3, rank % 3)
        assert (mesh.get_local_rank("replicate"), mesh.get_local_rank(1)) == (rank // 3, rank % 3)
        assert mesh.get_group("shard").ranks == tuple(range(rank // 3 * 3, rank // 3 * 3 + 3))
        line = mesh["shard"]
        assert (line.ndim, line.mesh_dim_names, line.get_group()) == (1, ("shard",), mesh.get_group(1))
        assert mesh[NAMES] == mesh
        assert mesh._flatten() == init_device_mesh("cpu", (6,), mesh_dim_names=("replicate_shard",))
        assert mesh._flatten("all").get_group() is mesh._flatten("all").get_group() is dist.group.WORLD
        with pytest.raises(ValueError, match="'shard' already exists for a submesh"):
            mesh._flatten("shard")
        again = DeviceMesh.from_group(mesh.get_all_groups(), "cpu", mesh.mesh, mesh_dim_names=NAMES)
        assert again == mesh and hash(again) == hash(mesh) and again.get_group(0) is mesh.get_group(0)
        table = torch.arange(10.0).reshape(5, 2) + 100 * rank
        x = distribute_tensor(table, mesh, [Replicate(), Shard(0)])
        y = DTensor.from_local(x.to_local().clone(), mesh, [Replicate(), Shard(0)])
        z = distribute_tensor(table, mesh["shard"], [Shard(0)], src_data_rank=None)
        assert x.full_tensor().equal(y.full_tensor()) and x.full_tensor()[0, 0].item() == 0
        assert z.full_tensor()[0, 0].item() == 100 * (rank // 3 * 3)
        assert distribute_tensor(table, mesh).placements == (Replicate(), Replicate())
        assert x.redistribute(placements=[Shard(0), Replicate()]).to_local().shape == (3 - rank // 3, 2)
        assert x.is_first_replica == (rank < 3)
        return x.local_rows

    assert ranks(6, program)[3:] == [range(2), range(2, 4), range(4, 5)]


@pytest.mark.parametrize(
    ("mistake", "error", "text"),
    [
        (lambda: fully_shard(Words(), mesh=DeviceMesh("cpu", [[1, 0], [2, 3]])), NotImplementedError, "have to ascend along each"),
        (lambda: distribute_tensor(torch.ones(4), grid(2, 2), [Shard(0)]), ValueError, "must have the same length"),
        (lambda: DeviceMesh("cpu", [[0, 1], [1, 2]]), RuntimeError, "each rank once"),
        (lambda: grid(2, 2)["rows"], KeyError, "Invalid mesh_dim_name 'rows'"),
        (lambda: grid(2, 2).get_group(), RuntimeError, "have 2 dimensions"),
        (lambda: DeviceMesh.from_group(grid(2, 2).get_all_groups(), "cpu"), ValueError, "Must pass mesh"),
        (
            lambda: DeviceMesh.from_group(grid(2, 2).get_all_groups()[::-1], "cpu", [[0, 1], [2, 3]]),
            ValueError, "along dimension 0 has the ranks .*, which are not the line of rank",
        ),
        (lambda: FSDP(Words(), device_mesh=grid(2, 2)), ValueError, "ndim=1 for ShardingStrategy.FULL_SHARD but got 2"),
        (
            lambda: FSDP(Words(), sharding_strategy=ShardingStrategy.HYBRID_SHARD, process_group=dist.group.WORLD),
            ValueError, r"process_group=\(the group that shards",
        ),
        (
            lambda: FSDP(Words(), process_group=(dist.group.WORLD, dist.group.WORLD)),
            ValueError, "a pair of process groups is for HYBRID_SHARD",
        ),
    ],
)  # fmt: skip
@on_ranks(4)
def test_mistakes_are_told(mistake, error, text):
    with pytest.raises(error, match=text):
        mistake()


def test_parts_of_a_model_lie_on_the_same_ranks():
    def program():
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        fully_shard(model[0], mesh=grid(2, 2)["shard"])
        fully_shard(model)(torch.ones(1, 2))

    with pytest.raises(ValueError, match=r"'0' lies on .*: the parts of a model lie on the same ranks"):
        ranks(4, program)


def test_backward_passes_without_an_average_over_replicas_add_up():
    def program(divided: bool):
        model = build().eval()
        net: Any = fully_shard(model, mesh=grid(2, 2)) if divided else DDP(model)
        for last in (False, True):
            if divided:
                net.set_requires_all_reduce(last)
            else:
                net.require_backward_grad_sync = last
            loss_of(net, batch()).backward()
        return [(p.grad.full_tensor() if divided else p.grad).numpy().tobytes() for p in model.parameters()]

    assert ranks(4, lambda: program(True)) == ranks(4, lambda: program(False))
