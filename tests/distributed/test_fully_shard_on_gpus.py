"""`fully_shard` with parameters on GPUs: the bits of DistributedDataParallel there, and memory of the GPU that is given back."""

import json
import re
from typing import Any

import pytest
from replicas import on_ranks, perceptron, ranks
from sharded import CASES, adamw, digest
from sharded_on_gpus import LAYERS

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.device_mesh import init_device_mesh
from ddpgrad.distributed.fsdp import (
    CPUOffload,
    CPUOffloadPolicy,
    FullStateDictConfig,
    StateDictType,
    fully_shard,
)
from ddpgrad.distributed.fsdp import FullyShardedDataParallel as FSDP
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


@on_ranks(2)
def test_parts_and_resharded_parameters_are_refused_beside_whole_tensors():
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
