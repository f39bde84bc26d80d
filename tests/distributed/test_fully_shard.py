"""`fully_shard`: the bits of DistributedDataParallel, memory divided by the ranks, files for any number of ranks."""

import gc
import io
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matrices import thinned
from replicas import on_ranks, perceptron, ranks
from sharded import CASES, WIDTH, adamw, batch, build, digest, initialise, loss_of, sharded, trained

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.distributed.checkpoint as dcp
from ddpgrad import nn
from ddpgrad.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from ddpgrad.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from ddpgrad.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, norms
from ddpgrad.launcher import Checkpointer
from ddpgrad.nn.parallel import DistributedDataParallel as DDP


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("world_size", [2, 4])
def test_losses_norms_and_parameters_have_the_bits_of_ddp(case: str, world_size: int):
    expected = ranks(world_size, lambda: trained(False, **CASES[case]))
    assert ranks(world_size, lambda: trained(True, **CASES[case])) == expected


def test_norms_have_the_bits_of_ddp_in_whatever_portions_they_are_found(monkeypatch):
    expected = ranks(3, lambda: trained(False, **CASES["sgd, clipped"]))
    monkeypatch.setattr(norms, "_TOGETHER", 100)
    assert ranks(3, lambda: trained(True, **CASES["sgd, clipped"])) == expected


@pytest.mark.parametrize("procs", thinned([2, 4], 2))
def test_the_bits_do_not_depend_on_processes(procs: int):
    """On a mesh of one dimension, and of two."""
    program = Path(__file__).with_name("sharded.py")
    command = [sys.executable, "-m", "ddpgrad.launcher", "-n", "4", "--procs", str(procs), program]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.split("] ", 1)[-1].split(";") for line in done.stdout.splitlines()]
    virtual = dict(
        zip(CASES, [ranks(4, lambda c=c: trained(True, **c))[0][-1] for c in CASES.values()], strict=True)
    )
    assert {name: digests for name, *digests in lines} == {name: [d] * 3 for name, d in virtual.items()}


def test_memory_is_divided_but_for_two_groups():
    """Of parameters, gradients and Adam's state; of all ranks together, which are threads of one process here."""
    size, blocks, n = 1 << 20, 8, 4

    def held(divided: bool) -> tuple[float, float]:
        model = nn.Sequential(
            *[nn.Linear(512, 511) if i % 2 == 0 else nn.Linear(511, 512) for i in range(blocks)]
        )
        if divided:
            for block in model:
                fully_shard(block)
        net = fully_shard(model) if divided else DDP(model)
        optimizer = adamw(model.parameters())
        x = torch.randn(1, 512)
        for step in range(3):
            if step == 2:
                dist.barrier()
                tracemalloc.reset_peak()
            net(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        dist.barrier()
        now, peak = tracemalloc.get_traced_memory()
        dist.barrier()
        return now / size, peak / size

    ranks(n, lambda: held(False))  # whatever is loaded and compiled
    gc.collect()
    tracemalloc.start()
    try:
        empty = tracemalloc.get_traced_memory()[0] / size
        now, peak = np.max(ranks(n, lambda: held(True)), axis=0) - empty
    finally:
        tracemalloc.stop()
    parameters, group = blocks, 1  # in MiB
    assert (
        now < 4 * parameters + 3 * n * group
    )  # each rank: a quarter of four times the parameters, and its room
    assert peak < 4 * parameters + 6 * n * group


def stepped(model: Any, optimizer: Any, steps: int, device: str) -> None:
    for _ in range(steps):
        loss_of(model, batch(device)).backward()
        optimizer.step()
        optimizer.zero_grad()


def state_of(model: nn.Module, optimizer: Any, device: str) -> list[Any]:
    """The digest, and the optimizer's state, whole; all of it lies on the device of this rank."""
    values = [v for p in model.parameters() for v in optimizer.state[p].values() if v.ndim]
    assert {v.device for v in values} == {model.get_parameter("norm.weight").device}
    assert values[0].device.type == device
    return [digest(model), [v.full_tensor().cpu().numpy().tobytes() for v in values]]


def test_a_checkpoint_goes_on_at_another_number_of_ranks_and_on_the_cpu(tmp_path: Path, device: str):
    def started():
        model = sharded(build(device=device)).eval()
        return model, adamw(model.parameters())

    def saves():
        model, optimizer = started()
        stepped(model, optimizer, 2, device)
        Checkpointer(tmp_path / "a").save(1, model=model, optimizer=optimizer)
        dcp.save({"model": model.state_dict()}, checkpoint_id=tmp_path / "b")
        return state_of(model, optimizer, device)

    def resumes():
        model, optimizer = started()
        assert Checkpointer(tmp_path / "a").resume(model=model, optimizer=optimizer) == 2
        other = sharded(build(device=device))
        state = {"model": other.state_dict()}
        dcp.load(state, checkpoint_id=tmp_path / "b")
        other.load_state_dict(state["model"])
        found = state_of(model, optimizer, device)
        assert digest(other) == found[0]
        stepped(model, optimizer, 1, device)
        assert digest(model) != found[0]
        return found

    expected = ranks(3, saves)[0]
    for world_size in (1, 2, 5):
        assert ranks(world_size, resumes) == [expected] * world_size
    whole = build()
    whole.load_state_dict(Checkpointer(tmp_path / "a").read("model"))
    assert digest(whole) == expected[0]


def test_state_dicts_are_whole_or_rows_on_the_device_or_the_cpu(device: str):
    def program():
        model = sharded(build(device=device))
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        full = {name: value.full_tensor() * 2 for name, value in model.state_dict().items()}
        assert {v.device.type for v in full.values()} == {device}
        model.load_state_dict({name: value.cpu() for name, value in full.items()})
        whole = build(device=device)
        whole.load_state_dict(full)
        other = sharded(build(device=device))
        other.load_state_dict(model.state_dict())
        torch.save(model.state_dict(), file := io.BytesIO())
        file.seek(0)
        saved = sharded(build(device=device))
        saved.load_state_dict(torch.load(file))
        offloaded = get_model_state_dict(model, options=options)
        assert bool(offloaded) == (dist.get_rank() == 0)
        assert {v.device.type for v in offloaded.values()} <= {"cpu"}
        rows = get_model_state_dict(model, options=StateDictOptions(cpu_offload=True))
        assert {(type(v), v.device.type) for v in rows.values()} == {(DTensor, "cpu")}
        return digest(model), digest(other), digest(whole), digest(saved)

    for found in ranks(3, program):
        assert len(set(found)) == 1


@on_ranks(3)
def test_parameters_on_meta_are_initialised_as_if_they_were_whole(device: str):
    with torch.device("meta"):
        model = build()
    sharded(model)
    with pytest.raises(RuntimeError, match=r"still on meta device: \['table.weight'"):
        model(batch()[:, :-1])
    model.to_empty(device=device)
    torch.manual_seed(3)
    model.apply(initialise)
    whole = build(device=device)
    torch.manual_seed(3)
    whole.apply(initialise)
    assert digest(model) == digest(whole)
    stepped(model, adamw(model.parameters()), 1, device)
    assert digest(model) != digest(whole)


def test_groups_compute_in_16_bits_and_parts_keep_theirs():
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)

    def program(n=4):
        model = sharded(build(), mp_policy=policy, offload_policy=CPUOffloadPolicy())
        optimizer = adamw(model.parameters())
        seen = []
        model.norm.register_forward_hook(
            lambda m, args, out: seen.append((m.weight.dtype, args[0].dtype, out.dtype))
        )
        losses = []
        for _ in range(n):
            loss = loss_of(model, batch())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            grad = model.norm.weight.grad
            optimizer.zero_grad()
        assert seen == [(torch.bfloat16,) * 3] * n
        assert (model.norm.weight.dtype, grad.dtype, grad.shape) == (torch.float32, torch.float32, (WIDTH,))
        assert losses[-1] < losses[0]
        out = fully_shard(
            nn.Linear(2, 2), mp_policy=MixedPrecisionPolicy(torch.bfloat16, output_dtype=torch.float64)
        )
        return out(torch.ones(1, 2)).dtype

    assert ranks(2, program) == [torch.float64] * 2


def test_a_frozen_group_rests_and_all_ranks_skip_a_step_together(device: str):
    def program():
        model = sharded(build(device=device))
        model.blocks[1].requires_grad_(False)
        optimizer = adamw([p for p in model.parameters() if p.requires_grad])
        scaler, found = torch.amp.GradScaler(device), []
        for step in range(3):
            loss = loss_of(model, batch(device))
            scaler.scale(loss * float("inf") if step == 1 and dist.get_rank() == 0 else loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            found.append((digest(model), scaler.get_scale()))
        assert all(isinstance(p, DTensor) and p.grad is None for p in model.blocks[1].parameters())
        watched = fully_shard(nn.Sequential(nn.Linear(3, 5)).to(device), nonfinite_gradients="skip")
        for bad in (True, False):
            loss = watched(torch.ones(1, 3, device=device)).sum()
            (loss * float("nan") if bad and dist.get_rank() == 1 else loss).backward()
            assert all((p.grad is None) == bad for p in watched.parameters())
        return found

    one, other = ranks(2, program)
    assert one == other and one[0][0] == one[1][0] != one[2][0] and one[1][1] == one[0][1] / 2


def test_parameters_are_gathered_and_dropped_on_request():
    class Scaled(nn.Linear):
        def scaled(self, x):
            return (x @ self.weight.t()).sum() * self(x)

    def program():
        torch.manual_seed(0)
        model = Scaled(3, 5)
        optimizer = adamw(model.parameters())  # made before, without state: parameters stay the same objects
        assert fully_shard(model) is model and isinstance(model, FSDPModule) and isinstance(model, Scaled)
        with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor"):
            model.scaled(torch.ones(1, 3))
        register_fsdp_forward_method(model, "scaled")
        told = []
        model.bias.register_post_accumulate_grad_hook(lambda p: told.append(p.grad.full_tensor().shape))
        model.scaled(torch.ones(1, 3)).sum().backward()
        before = digest(model)
        optimizer.step()
        assert told == [(5,)] and digest(model) != before
        handle = model.unshard(async_op=True)
        handle.wait()
        whole = model.weight
        assert type(whole) is nn.Parameter and whole.shape == (5, 3)
        model.reshard()
        assert isinstance(model.weight, DTensor) and model.weight.shape == (5, 3)
        with pytest.raises(NotImplementedError, match="was resharded"):
            whole + 1
        model.set_reshard_after_backward(False)
        model(torch.ones(1, 3)).sum().backward()
        assert type(model.weight) is nn.Parameter
        optimizer.step()  # what was kept is gathered anew where it has changed
        first = model(torch.ones(1, 3)).detach()
        model.reshard()
        return torch.equal(first, model(torch.ones(1, 3)))

    assert ranks(2, program) == [True] * 2


def test_dtensors_have_rows_and_compute_with_one_another(device: str):
    def program():
        mesh = dist.init_device_mesh(device, (dist.get_world_size(),))
        torch.manual_seed(dist.get_rank())  # rank 0's values count
        value = torch.randn(5, 2, device=device)
        x = distribute_tensor(value, mesh, [Shard(0)])
        everywhere = x.redistribute(placements=[Replicate()])
        again = DTensor.from_local(x.to_local().clone(), mesh, [Shard(0)])
        assert torch.equal(again.full_tensor(), everywhere.to_local()) and again.shape == (5, 2)
        x.mul_(2).add_(again).clamp_(max=1.0)
        torch.manual_seed(7)
        drawn = torch.empty(5, 2, device=device).normal_()
        torch.manual_seed(7)
        assert torch.equal(x.clone().normal_().full_tensor(), drawn)
        with pytest.raises(NotImplementedError, match="full_tensor"):
            x.numpy()
        with pytest.raises(RuntimeError, match=r"mixed torch.Tensor and DTensor.* of shape \[2\]"):
            x + torch.ones(2, device=device)
        assert torch.equal(x.exp().cumsum(0)[1:].full_tensor(), x.full_tensor().exp().cumsum(0)[1:])
        assert torch.equal(
            (x.abs() / 2 - x * x).full_tensor(), x.full_tensor().abs() / 2 - x.full_tensor().square()
        )
        assert x.max().item() == x.full_tensor().max().item() and torch.zeros_like(x).placements == (
            Shard(0),
        )
        trained = nn.Parameter(x)
        (1 - trained.square()).sum().backward()
        assert torch.equal(trained.grad.full_tensor(), -2 * x.full_tensor())
        assert {t.device.type for t in (x, x.full_tensor(), trained.grad)} == {device}
        assert (trained.detach() * 2).to_local().equal(x.to_local() * 2)
        return x.local_rows, x.full_tensor().tolist(), value.tolist()

    found = ranks(4, program)
    assert [rows for rows, _, _ in found] == [range(2), range(2, 4), range(4, 5), range(5, 5)]
    expected = (torch.tensor(found[0][2]) * 3).clamp(max=1.0)
    for _, whole, _ in found:
        assert torch.allclose(torch.tensor(whole), expected)


def test_mistakes_are_told():
    def stale(model):
        fully_shard(model[2])
        fully_shard(model)
        loss = model(torch.ones(1, 6)).sum()
        with torch.no_grad():
            model[2].weight.mul_(2)  # whose input has a gradient
        loss.backward()

    def broken(model):
        fully_shard(model)
        out = model(torch.ones(1, 6))
        model[0].weight.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            out.sum().backward()
        model(torch.ones(1, 6))

    def replaced(model):
        fully_shard(model)
        model[0].weight = nn.Parameter(torch.ones(20, 6))
        model(torch.ones(1, 6))

    def differing(model):
        fully_shard(model, reshard_after_forward=dist.get_rank() == 0)

    cube = lambda: dist.DeviceMesh("cpu", [[[0, 1]]])  # noqa: E731
    mistakes = [
        (lambda m: fully_shard(fully_shard(m)), RuntimeError, "was called for this FSDPSequential already"),
        (lambda m: fully_shard(torch.relu), TypeError, "takes one Module, got function"),
        (lambda m: fully_shard(m, mesh=cube()), ValueError, "1D or 2D DeviceMesh"),
        (lambda m: (m[0].register_parameter("s", nn.Parameter(torch.tensor(1.0))), fully_shard(m)), ValueError, "Change 0.s to a 1D tensor"),
        (lambda m: register_fsdp_forward_method(fully_shard(m), "encode"), ValueError, "does not have a method encode"),
        (lambda m: (m(torch.ones(1, 6)).sum().backward(), fully_shard(m)), RuntimeError, "'0.weight' has a gradient"),
        (stale, torch.errors.GraphError, "changed since its forward"),
        (broken, torch.errors.DistributedError, "the last backward did not run to its end"),
        (replaced, RuntimeError, "'0.weight' was replaced by another"),
        (differing, torch.errors.MismatchError, "fully_shard has reshard_after_forward=True on rank 0"),
    ]  # fmt: skip
    for mistake, kind, text in mistakes:

        def program(mistake=mistake, kind=kind, text=text):
            with pytest.raises(kind, match=text):
                mistake(perceptron())

        ranks(2, program)
