"""`fully_shard` with parameters on GPUs: the bits of DistributedDataParallel there, and memory of the GPU that is given back."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from replicas import on_ranks, perceptron, ranks
from sharded import CASES, adamw, batch, build, digest, initialise, loss_of, sharded, trained
from sharded_on_gpus import LAYERS

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.distributed.checkpoint as dcp
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from ddpgrad.distributed.device_mesh import init_device_mesh
from ddpgrad.distributed.fsdp import (
    CPUOffload,
    CPUOffloadPolicy,
    FullStateDictConfig,
    StateDictType,
    fully_shard,
)
from ddpgrad.distributed.fsdp import FullyShardedDataParallel as FSDP
from ddpgrad.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from ddpgrad.launcher import Checkpointer
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

pytestmark = pytest.mark.gpu


def test_bits_are_those_of_ddp_however_gradients_travel_and_memory_is_given_back(start_job):
    told: dict[int, list[Any]] = {0: [], 1: []}
    for backend, procs in (("gloo", 1), ("gloo", 2), ("nccl", 2)):
        if backend == "nccl" and (torch.cuda.device_count() < 2 or not dist.is_nccl_available()):
            continue
        for process in start_job(2, procs, "sharded_on_gpus.py", backend).ended():
            assert process.code == 0, process.output
            for line in re.findall(r"found (.*)", process.output):
                found = json.loads(line)
                memory = found.pop("memory")
                if procs == 2:
                    given_back(memory)
                told[found.pop("rank")].append(found)
    assert all(len(found) >= 2 for found in told.values())
    for found in told.values():
        for case in (*CASES, "perceptron"):
            whole, divided = found[0][case]
            assert divided == whole and len(whole) > 5
        assert all(other == found[0] for other in found)


def given_back(memory: dict[str, float]) -> None:
    """A rank of two has half of each layer, and a whole one only while it is used."""
    half = LAYERS / 2
    assert half <= memory["divided"] < half + 0.1
    assert half + 1 <= memory["gathered"] < half + 1.1
    assert memory["resharded"] < half + 0.1
    assert half + 1 <= memory["forward"] < half + 1.2
    assert memory["after forward"] < half + 0.2
    assert memory["after backward"] < 2 * half + 0.2  # with the gradients of its rows


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 2)])
def test_replicas_of_rows_have_the_bits_of_ddp(shape: tuple[int, int]):
    n, case = shape[0] * shape[1], CASES["sgd, clipped"]
    expected = ranks(n, lambda: trained(False, device="cuda", **case))
    mesh = lambda: init_device_mesh("cuda", shape)  # noqa: E731
    assert ranks(n, lambda: trained(True, mesh=mesh(), device="cuda", **case)) == expected


def stepped(model: Any, optimizer: Any, steps: int) -> None:
    for _ in range(steps):
        loss_of(model, batch("cuda")).backward()
        optimizer.step()
        optimizer.zero_grad()


def state_of(model: nn.Module, optimizer: Any) -> list[Any]:
    """The digest, and the optimizer's state, whole; all of it on the GPU of this rank."""
    here = model.get_parameter("norm.weight").device
    values = [v for p in model.parameters() for v in optimizer.state[p].values() if v.ndim]
    assert {str(v.device) for v in values} == {str(here)} and here.type == "cuda"
    return [digest(model), [v.full_tensor().cpu().numpy().tobytes() for v in values]]


def started() -> tuple[Any, Any]:
    model = sharded(build(device="cuda")).eval()
    return model, adamw(model.parameters())


def test_a_checkpoint_goes_on_at_another_number_of_ranks_and_on_the_cpu(tmp_path: Path):
    def saves():
        model, optimizer = started()
        stepped(model, optimizer, 2)
        Checkpointer(tmp_path / "a").save(1, model=model, optimizer=optimizer)
        dcp.save({"model": model.state_dict()}, checkpoint_id=tmp_path / "b")
        return state_of(model, optimizer)

    def resumes():
        model, optimizer = started()
        assert Checkpointer(tmp_path / "a").resume(model=model, optimizer=optimizer) == 2
        other = sharded(build(device="cuda"))
        state = {"model": other.state_dict()}
        dcp.load(state, checkpoint_id=tmp_path / "b")
        other.load_state_dict(state["model"])
        found = state_of(model, optimizer)
        assert digest(other) == found[0]
        stepped(model, optimizer, 1)
        assert digest(model) != found[0]
        return found

    expected = ranks(3, saves)[0]
    for world_size in (1, 2):
        assert ranks(world_size, resumes) == [expected] * world_size
    whole = build()
    whole.load_state_dict(Checkpointer(tmp_path / "a").read("model"))
    assert digest(whole) == expected[0]


def test_state_dicts_are_whole_or_rows_on_the_gpu_or_the_cpu():
    def program():
        model = sharded(build(device="cuda"))
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        full = {name: value.full_tensor() * 2 for name, value in model.state_dict().items()}
        assert {v.device.type for v in full.values()} == {"cuda"}
        model.load_state_dict({name: value.cpu() for name, value in full.items()})
        whole = build(device="cuda")
        whole.load_state_dict(full)
        other = sharded(build(device="cuda"))
        other.load_state_dict(model.state_dict())
        offloaded = get_model_state_dict(model, options=options)
        assert bool(offloaded) == (dist.get_rank() == 0)
        assert {v.device.type for v in offloaded.values()} <= {"cpu"}
        rows = get_model_state_dict(model, options=StateDictOptions(cpu_offload=True))
        assert {(type(v), v.device.type) for v in rows.values()} == {(DTensor, "cpu")}
        return digest(model), digest(other), digest(whole)

    for found in ranks(3, program):
        assert len(set(found)) == 1


@on_ranks(2)
def test_parameters_on_meta_are_initialised_on_the_gpu():
    with torch.device("meta"):
        model = sharded(build())
    model.to_empty(device="cuda")
    torch.manual_seed(3)
    model.apply(initialise)
    whole = build(device="cuda")
    torch.manual_seed(3)
    whole.apply(initialise)
    same = digest(model) == digest(whole)
    optimizer = adamw(model.parameters())
    stepped(model, optimizer, 1)
    assert same and digest(model) != digest(whole)


def test_all_ranks_skip_a_step_together():
    def scaled():
        model = sharded(build(device="cuda"))
        model.blocks[1].requires_grad_(False)
        optimizer = adamw([p for p in model.parameters() if p.requires_grad])
        scaler, found = torch.amp.GradScaler("cuda"), []
        for step in range(3):
            loss = loss_of(model, batch("cuda"))
            scaler.scale(loss * float("inf") if step == 1 and dist.get_rank() == 0 else loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            found.append((digest(model), scaler.get_scale()))
        return found

    def watched():
        model = sharded(build(device="cuda"))
        fully = fully_shard(nn.Sequential(nn.Linear(3, 5)).cuda(), nonfinite_gradients="skip")
        for bad in (True, False):
            loss = fully(torch.ones(1, 3).cuda()).sum()
            (loss * float("nan") if bad and dist.get_rank() == 1 else loss).backward()
            assert all((p.grad is None) == bad for p in fully.parameters())
        return model is not fully

    one, other = ranks(2, scaled)
    assert one == other and one[0][0] == one[1][0] != one[2][0] and one[1][1] == one[0][1] / 2
    assert ranks(2, watched) == [True] * 2


def test_micro_batches_and_weights_have_the_bits_of_ddp():
    def program(divided: bool):
        model = perceptron().cuda()
        net: Any = fully_shard(model) if divided else DDP(model)
        optimizer = adamw(model.parameters())
        torch.manual_seed(5 + dist.get_rank())
        told = []
        for step in range(2):
            x, y = torch.randn(6, 6).cuda(), torch.randn(6, 4).cuda()
            if step:
                net.loss_weight(1 + dist.get_rank())
                F.mse_loss(net(x), y).backward()
            else:
                for a, b in net.accumulate(2, x, y):
                    F.mse_loss(net(a), b).backward()
            told.append(nn.utils.clip_grad_norm_(net.parameters(), 0.5).item())
            optimizer.step()
            optimizer.zero_grad()
        return [*told, digest(model)]

    assert ranks(2, lambda: program(True)) == ranks(2, lambda: program(False))


def test_the_older_class_moves_a_module_and_its_arguments():
    def program(divided: bool):
        model: Any = perceptron()
        device = torch.cuda.current_device()
        net: Any = FSDP(model, device_id=device) if divided else DDP(model.cuda())
        optimizer = adamw(net.parameters())
        torch.manual_seed(dist.get_rank())
        x = torch.randn(4, 6)
        for _ in range(3):
            net(x if divided else x.cuda()).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        if divided:
            assert {p.device for p in net.parameters()} == {torch.device("cuda", device)}
            with FSDP.summon_full_params(net, offload_to_cpu=True):
                assert {(p.device.type, p.shape) for p in net[0].parameters()} == {
                    ("cpu", (20, 6)),
                    ("cpu", (20,)),
                }
                net[0].bias.data.add_(0.0)
            config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(net, StateDictType.FULL_STATE_DICT, config):
                state = net.state_dict()
            assert len(state) == (4 if dist.get_rank() == 0 else 0)
            assert {v.device.type for v in state.values()} <= {"cpu"}
            moments = FSDP.optim_state_dict(net, optimizer)["state"]["0.weight"]
            assert moments["exp_avg"].device.type == "cpu" and moments["exp_avg"].shape == (20, 6)
        return digest(net)

    assert ranks(2, lambda: program(True)) == ranks(2, lambda: program(False))


def test_dtensors_lie_and_compute_where_they_were_made():
    def program():
        mesh = init_device_mesh("cuda", (2,))
        torch.manual_seed(dist.get_rank())  # rank 0's values count
        x = distribute_tensor(torch.randn(5, 2).cuda(), mesh, [Shard(0)])
        everywhere = x.redistribute(placements=[Replicate()])
        again = DTensor.from_local(x.to_local().clone(), mesh, [Shard(0)])
        assert torch.equal(again.full_tensor(), everywhere.to_local()) and again.shape == (5, 2)
        expected = (everywhere.to_local() * 3).clamp(max=1.0)
        assert torch.equal(x.mul_(2).add_(again).clamp_(max=1.0).full_tensor(), expected)
        torch.manual_seed(7)
        drawn = torch.empty(5, 2, device="cuda").normal_()
        torch.manual_seed(7)
        assert torch.equal(x.clone().normal_().full_tensor(), drawn)
        trained = nn.Parameter(x)
        (1 - trained.square()).sum().backward()
        assert trained.grad.device == x.device and torch.equal(trained.grad.full_tensor(), -2 * expected)
        model = fully_shard(nn.Linear(3, 5).cuda())
        model.unshard()
        gone, part = model.weight, None
        model.reshard()
        part = model.weight
        one, full = torch.ones(2, 3).cuda(), torch.ones(5, 3).cuda()
        for p, error, told in (
            (part, RuntimeError, "mixed torch.Tensor and DTensor"),
            (gone, NotImplementedError, "was resharded"),
        ):
            for refused in (
                lambda p=p: full + p,
                lambda p=p: F.linear(one, p),
                lambda p=p: torch.where(full > 0, full, p),
                lambda p=p: full.clone().add_(p),
            ):
                with pytest.raises(error, match=told):
                    refused()
        with pytest.raises(NotImplementedError, match="matmul: this parameter was resharded"):
            torch.ones(2, 5).cuda() @ gone
        return str(x.device), str(x.full_tensor().device)

    assert [a == b and a.startswith("cuda:") for a, b in ranks(2, program)] == [True] * 2


@pytest.mark.parametrize("start", ["gpu", "cpu", "older class"])
def test_rows_may_lie_in_host_memory(start: str):
    """With their gradients and the optimizer's state, while the GPU computes."""

    def trained_here(offloads: bool):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 7), nn.BatchNorm1d(7), nn.Linear(7, 5))
        options: dict[str, Any] = {}
        if offloads and start == "cpu":
            options["mesh"] = init_device_mesh("cuda", (2,))
        else:
            model.cuda()
        if offloads and start == "older class":
            model = FSDP(model, cpu_offload=CPUOffload(True))
        else:
            options |= {"offload_policy": CPUOffloadPolicy()} if offloads else {}
            fully_shard(model[0], reshard_after_forward=True, **options)
            fully_shard(model, **options)
        optimizer, told = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
        torch.manual_seed(dist.get_rank())
        for _ in range(4):
            out = model(torch.randn(8, 6, device="cuda"))
            assert out.is_cuda
            out.square().mean().backward()
            told.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        kind = "cpu" if offloads else "cuda"
        for p in model.parameters():
            assert {p.device.type, p.grad.device.type} == {kind}
            assert {v.device.type for v in optimizer.state[p].values() if v.ndim} == {kind}
        assert all(b.is_cuda for b in model.buffers())
        return torch.cat(
            [torch.tensor(told), *(p.full_tensor().detach().cpu().flatten() for p in model.parameters())]
        )

    def program():
        return torch.allclose(trained_here(True), trained_here(False), atol=1e-6)

    assert ranks(2, program) == [True] * 2


def test_mistakes_are_told():
    def late(model):
        model = fully_shard(model.cuda())
        model(torch.ones(1, 6).cuda())
        model.cpu()(torch.ones(1, 6))

    def apart(model):
        fully_shard(model.cuda()[2].cpu())
        fully_shard(model)(torch.ones(1, 6).cuda())

    def mixed(model):
        model[2].cuda()
        fully_shard(model)(torch.ones(1, 6))

    def empty(model):
        with torch.device("meta"):
            model = perceptron()
        mesh = init_device_mesh("cuda", (2,))
        fully_shard(model, mesh=mesh, offload_policy=CPUOffloadPolicy())
        model.to_empty(device="cuda")(torch.ones(1, 6).cuda())

    mistakes = [
        (empty, RuntimeError, "should be materialized on CPU when enabling CPU offloading, and those of 'the root' lie on cuda"),
        (late, RuntimeError, "have left cuda:. after their first use"),
        (apart, RuntimeError, "below one module lie on several devices, .'cpu', 'cuda:."),
        (mixed, RuntimeError, "group 'the root' lie on several devices"),
    ]  # fmt: skip
    for mistake, kind, text in mistakes:

        def program(mistake=mistake, kind=kind, text=text):
            with pytest.raises(kind, match=text):
                mistake(perceptron())

        ranks(2, program)
