"""Golden texts of mistakes in data parallel programs, on two ranks: what is wrong, where, and what to do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replicas import gradients, ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.errors import DistributedError, MismatchError
from ddpgrad.nn.parallel import DistributedDataParallel as DDP
from ddpgrad.utils.data import DataLoader, DistributedSampler, TensorDataset

X = torch.arange(12.0).reshape(4, 3)


def build() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def backward(model: nn.Module) -> None:
    model(X).sum().backward()


def part_added() -> None:
    ddp = DDP(build())
    ddp.module.add_module("head", nn.Linear(2, 2))
    backward(ddp)


def gradients_of_another_dtype() -> None:
    model = build()
    model[0].weight.grad_dtype = torch.float64
    DDP(model)


def parameters_replaced() -> None:
    ddp = DDP(build())
    ddp.load_state_dict(ddp.state_dict(), assign=True)
    backward(ddp)


def unfrozen_later() -> None:
    model = build()
    model[0].requires_grad_(False)
    ddp = DDP(model)
    model[0].requires_grad_(True)
    backward(ddp)


def two_models_in_another_order() -> None:
    for model in [DDP(build()), DDP(build())][:: 1 if dist.get_rank() else -1]:
        backward(model)


def graph_of_averages(wrap: Callable[[nn.Module], nn.Module]) -> Callable[[], None]:
    def program() -> None:
        model = wrap(build())
        model(X).sum().backward(create_graph=True)

    return program


def part_unused() -> None:
    model = build()
    ddp = DDP(model)
    model[0](X).sum().backward()
    backward(ddp)


def with_hook(hook: Any) -> Callable[[], None]:
    def program() -> None:
        ddp = DDP(build())
        ddp.register_comm_hook(None, hook)
        backward(ddp)

    return program


def of_three(state: Any, bucket: dist.GradBucket) -> torch.futures.Future:
    future = torch.futures.Future()
    future.set_result(bucket.buffer()[:3])
    return future


def hook_twice() -> None:
    ddp = DDP(build())
    for _ in range(2):
        ddp.register_comm_hook(None, of_three)


def optimizer_with_state_before_sharding() -> None:
    model = build()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(2):
        backward(model)
        optimizer.step()
        optimizer.zero_grad()
        if step == 0:
            fully_shard(model)


def weight(n: float) -> Callable[[], None]:
    def program() -> None:
        ddp = DDP(build())
        loss = ddp(X).sum()
        ddp.loss_weight(n)
        loss.backward()

    return program


def accumulated(k: int) -> Callable[[], None]:
    def program() -> None:
        ddp = DDP(build())
        for x in ddp.accumulate(k, X):
            ddp(x).sum().backward()

    return program


def whole_after_part() -> None:
    model = build()
    fully_shard(model)
    fully_shard(model[0])


def of_rank_zero_alone() -> None:
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(3))
    dist.barrier()


ADDED = (
    "was not in the model when DistributedDataParallel took it over, so that its gradient would not be averaged over the ranks. "
    "Add and replace parts (load_state_dict(assign=True) replaces parameters) before the model is wrapped, or wrap "
    "model.module again."
)
NOT_WHOLE = (
    "linear: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators! "
    "A tensor of shape [4, 3] that all ranks have alike becomes one by distribute_tensor(tensor, mesh) or "
    "DTensor.from_local(tensor, mesh, [Replicate()]). Under fully_shard call the module that was sharded: its forward() and its "
    "parts have no whole parameters by themselves"
)
NO_GRAPH = (
    "the gradient of parameter '{}' has a graph of its own (create_graph=True), which an average over the ranks has not: "
    "what is computed from .grad adds nothing to a loss. Take the first gradients by torch.autograd.grad(loss, inputs, "
    "create_graph=True), and call backward() once for the loss and what is computed from them."
)
NO_FUTURE = (
    "a communication hook must return a torch.futures.Future of the bucket's new gradients, got {}; "
    "`work.get_future().then(...)` makes one"
)
# The text is all of the message, or, where it ends in an ellipsis, what it begins with.
MISTAKES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "sharded after it was wrapped": (
        lambda: fully_shard(DDP(build())),
        RuntimeError,
        "fully_shard: the module is a DistributedDataParallel already: fully_shard averages gradients itself, use ddp.module",
    ),
    "wrapped after it was sharded": (
        lambda: DDP(fully_shard(build())),
        RuntimeError,
        "DistributedDataParallel: the module's parameters are DTensors. fully_shard averages gradients itself: use the module "
        "as it is. What tensor parallelism has divided takes device_mesh=, another dimension of the same mesh.",
    ),
    "not a module": (
        lambda: DDP([nn.Linear(2, 2)]),  # type: ignore[arg-type]
        TypeError,
        "DistributedDataParallel takes one Module, got list: wrap each module by itself",
    ),
    "a part added after wrapping": (part_added, RuntimeError, f"parameter 'head.weight' {ADDED}"),
    "parameters replaced after wrapping": (
        parameters_replaced,
        RuntimeError,
        f"parameter '0.weight' {ADDED}",
    ),
    "unfrozen after wrapping": (
        unfrozen_later,
        RuntimeError,
        "parameter '0.weight' was frozen when DistributedDataParallel took the model over, and requires a gradient now, which "
        "would not be averaged over the ranks. Wrap the model again after requires_grad_(True).",
    ),
    "a part left unused": (
        part_unused,
        DistributedError,
        "rank …: backward ended, but 2 of 4 parameters got no gradient: '2.weight', '2.bias'. Either the forward pass did not "
        "use them, or the loss does not depend on them. Let forward and the loss use them (nothing of '2' was used), or call "
        "requires_grad_(False) on them before the model is wrapped. If that is meant, wrap with "
        "DistributedDataParallel(model, find_unused_parameters=True).",
    ),
    "a graph of averaged gradients": (graph_of_averages(DDP), UserWarning, NO_GRAPH.format("2.weight")),
    "a graph of averaged parts": (
        graph_of_averages(fully_shard),
        UserWarning,
        NO_GRAPH.format("0.weight"),
    ),
    "nothing to train": (
        lambda: DDP(nn.Tanh()),
        RuntimeError,
        "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.",
    ),
    "models of different shape": (
        lambda: DDP(nn.Linear(3, 2 + dist.get_rank())),
        MismatchError,
        "the models differ in parameter 'weight': rank 0 has shape [2, 3] of float32, rank 1 has shape [3, 3] of float32. Build "
        "the same model on every rank; ranks may differ in data, not in the model's structure.",
    ),
    "unequal buckets": (
        lambda: DDP(build(), bucket_cap_mb=1 + dist.get_rank()),
        MismatchError,
        "DistributedDataParallel has bucket_cap_mb=1 on rank 0 and bucket_cap_mb=2 on rank 1: pass the same options on every "
        "rank",
    ),
    "a hook that returns nothing": (with_hook(lambda s, b: None), TypeError, NO_FUTURE.format("NoneType")),
    "a hook that returns a tensor": (
        with_hook(lambda s, b: b.buffer()),
        TypeError,
        NO_FUTURE.format("Tensor"),
    ),
    "a hook that returns too little": (
        with_hook(of_three),
        ValueError,
        "a communication hook's future must have a tensor of the bucket's 64 elements, got [3]",
    ),
    "a hook of one argument": (
        with_hook(lambda bucket: bucket),
        ValueError,
        "Communication hook: expected two parameters, state and bucket.",
    ),
    "two hooks": (
        hook_twice,
        RuntimeError,
        "register_comm_hook or register_builtin_comm_hook can only be called once.",
    ),
    "an optimizer with state from before sharding": (
        optimizer_with_state_before_sharding,
        RuntimeError,
        "optimizer state does not have the shape of its parameter: its .data was replaced, or fully_shard has divided it; make "
        "the optimizer after that",
    ),
    "the whole sharded before a part": (
        whole_after_part,
        RuntimeError,
        "fully_shard: parameter 'weight' is sharded already. Call fully_shard for parts before the module that has them; where "
        "two modules share a parameter, call it for one that has both, or for a list of both.",
    ),
    "model.forward called under fully_shard": (
        lambda: fully_shard(build()).forward(X),
        RuntimeError,
        NOT_WHOLE,
    ),
    "a part called under fully_shard": (
        lambda: fully_shard(nn.Sequential(nn.Linear(3, 4, bias=False)))[0](X),
        RuntimeError,
        NOT_WHOLE,
    ),
    "weights of zero": (
        weight(0),
        DistributedError,
        "loss_weight: the weights of all ranks' batches sum to 0, and the mean over nothing is undefined: leave out this step "
        "on all ranks, as ddpgrad.distributed.agree(n > 0) tells beforehand",
    ),
    "a weight below zero": (
        weight(-1),
        ValueError,
        "loss_weight: expected a finite number that is not negative, got -1.0",
    ),
    "three micro-batches on two ranks": (
        accumulated(3),
        ValueError,
        "accumulate: on several ranks the number of micro-batches must be a power of 2, got 3: the gradients of a rank are a "
        "part of the tree that adds those of all",
    ),
    "a collective under if rank == 0": (
        of_rank_zero_alone,
        MismatchError,
        "the ranks are about to do different things in collective number 2; rank 1 is the first that differs (collective "
        "barrier instead of all_reduce(sum)):…",
    ),
    "two models in another order": (
        two_models_in_another_order,
        MismatchError,
        "the ranks are about to do different things in collective number 10; rank 1 is the first that differs (label "
        "2.bias, 2.weight, 0.bias, 0.weight instead of model 2: 2.bias, 2.weight, 0.bias, 0.weight):…",
    ),
    "gradients of another dtype": (
        gradients_of_another_dtype,
        RuntimeError,
        "the gradient of '0.weight' has grad_dtype torch.float64; under DistributedDataParallel it must be that of the "
        "parameter, torch.float32",
    ),
    "a sampler and shuffle": (
        lambda: DataLoader(TensorDataset(X), shuffle=True, sampler=DistributedSampler(TensorDataset(X))),
        ValueError,
        "sampler option is mutually exclusive with shuffle: the sampler decides the order",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True:UserWarning")
def test_message(name: str):
    mistake, kind, text = MISTAKES[name]
    with pytest.raises(kind) as caught:
        ranks(2, mistake)
    message = (
        str(caught.value)
        .replace("rank 0: backward", "rank …: backward")
        .replace("rank 1: backward", "rank …: backward")
    )
    assert message == text or (text.endswith("…") and message.startswith(text[:-1]))


@pytest.mark.parametrize(
    ("wrap", "what"),
    [(lambda: DDP(build()), "the module"), (lambda: nn.Sequential(DDP(build()), nn.Tanh()), "its part '0'")],
)
def test_a_model_wrapped_twice_is_averaged_once(wrap, what):
    def program(twice):
        model = wrap()
        ddp = DDP(model) if twice else model
        (ddp(X) * (1 + dist.get_rank())).sum().backward()
        return list(gradients(ddp).values())

    expected = ranks(2, lambda: program(False))[0]
    text = f"DistributedDataParallel: {what} is a DistributedDataParallel already; its gradients are averaged by the outer"
    with pytest.warns(UserWarning, match=text):
        found = ranks(2, lambda: program(True))[0]
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_graph_that_outlives_its_wrapper_is_warned_of():
    def program():
        model = build()
        loss = DDP(model)(X).sum()
        with pytest.warns(
            RuntimeWarning,
            match="DistributedDataParallel was freed after its forward, and before the backward",
        ):
            loss.backward()
        del loss
        backward(model)  # without a word: its graph was never anybody's
        DDP(model)(X)
        backward(model)

    ranks(2, program)


def test_a_model_converted_after_wrapping_has_gradients_of_its_new_kind():
    def program():
        model = build()
        ddp = DDP(model)
        found = []
        for dtype in (torch.float32, torch.float64):
            ddp.to(dtype)
            ddp.zero_grad()
            (ddp(X.to(dtype)) * (1 + dist.get_rank())).sum().backward()
            assert model[0].weight.grad is not None and model[0].weight.grad.dtype is dtype
            found.append(model[0].weight.grad.double())
        return found

    for single, double in ranks(2, program):
        assert torch.allclose(single, double, rtol=1e-5)
