"""Training steps that a captured step repeats, and some that it cannot."""

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn

Step = Callable[[torch.Tensor, torch.Tensor], Any]
Program = Callable[[], tuple[Step, Callable[[], Any]]]

CAPTURED: dict[str, Program] = {}
REFUSED: dict[str, tuple[Program, str]] = {}


def captured(program: Program) -> Program:
    """A program whose step is replayed."""
    CAPTURED[program.__name__] = program
    return program


def refused(why: str) -> Callable[[Program], Program]:
    """A program whose step runs eagerly, and why."""

    def declare(program: Program) -> Program:
        REFUSED[program.__name__] = program, why
        return program

    return declare


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3), nn.Tanh()
        )


def usual(model: nn.Module, optimizer: Any, loss: Callable[..., torch.Tensor], *after: Callable[[], Any]):
    """The step of a training loop, and the numbers that it changes."""

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(x, y)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        for call in after:
            call()
        return value

    return step, lambda: list(model.state_dict().values())


def of(model: nn.Module) -> Callable[..., torch.Tensor]:
    return lambda x, y: F.cross_entropy(model(x), y)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


@captured
def a_schedule_within():
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    average = torch.optim.swa_utils.AveragedModel(model)
    return usual(model, optimizer, of(model), schedule.step, lambda: average.update_parameters(model))


@captured
def two_networks_and_noise():
    maker, judge = Net(), nn.Linear(3, 1)
    making, judging = (
        torch.optim.Adam(maker.parameters(), 0.01),
        torch.optim.RMSprop(judge.parameters(), 0.01),
    )

    def step(x, y):
        fake = maker(x + 0.1 * torch.randn_like(x) + torch.randint(0, 2, (8, 6)))
        judging.zero_grad()
        first = F.softplus(judge(fake.detach())).mean() + F.softplus(-judge(torch.rand(8, 3))).mean()
        first.backward()
        judging.step()
        making.zero_grad()
        second = F.softplus(-judge(fake)).mean()
        second.backward()
        making.step()
        return first, second

    return step, lambda: [*maker.state_dict().values(), *judge.parameters()]


@captured
def micro_batches_without_a_graph_of_their_own():
    model = Net()
    optimizer = sgd(model)

    def step(x, y):
        for p in model.parameters():
            p.grad = None
        for part, target in zip(x.chunk(2), y.chunk(2), strict=True):
            loss = (
                F.cross_entropy(torch.utils.checkpoint.checkpoint(model, part, use_reentrant=False), target)
                / 2
            )
            loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
        return {"loss": loss, "name": "last"}

    return step, lambda: model.state_dict().values()


@captured
def a_gradient_penalty_under_hooks():
    model = Net()
    model[0].weight.register_hook(lambda g: g * 0.5)
    model[4].bias.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.9) is None or None)
    model[2].register_forward_hook(lambda module, args, out: out + 1)
    model[4].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2,))

    def loss(x, y):
        x = x.clone().requires_grad_()
        value = F.cross_entropy(model(x), y)
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        return value + slope.square().sum()

    return usual(model, sgd(model), loss)


@captured
def mixed_precision():
    model = Net()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x, y):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step, lambda: model.state_dict().values()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 2


@captured
def writes_in_place_and_steps_by_hand():
    table, weight = nn.Embedding(10, 6), nn.Parameter(torch.randn(6, 3))
    memory, slow = torch.zeros(8, 6), copy.deepcopy(table)
    square = nn.Parameter(torch.randn(3, 3))  # its gradient lies turned

    def step(x, y):
        table.zero_grad()
        weight.grad = square.grad = None
        h = table(torch.arange(8)) + Doubled.apply(x) + memory
        room = torch.zeros(8, 6)
        room[:, 2:] = h[:, 2:]
        room[0] += 1
        scores = ((room + h) @ weight).masked_fill(torch.ones(8, 3).tril() == 0, -1.0)
        loss = -F.log_softmax(scores, 1)[torch.arange(8), y].mean() + square.det()
        loss.backward()
        memory.copy_(h.detach())
        with torch.no_grad():
            for p in (table.weight, weight, square):
                p -= 0.1 * p.grad
            slow.weight.mul_(0.9).add_(table.weight, alpha=0.1)
        return loss.detach(), x

    return step, lambda: [table.weight, slow.weight, weight, square, memory]


@captured
def gradients_that_add_up():
    model = Net()

    def step(x, y):
        F.cross_entropy(model(x), y).backward()

    return step, lambda: [p.grad for p in model.parameters()]


@refused("it reads a value, by Tensor.item")
def a_number_returned():
    model = Net()
    step, state = usual(model, sgd(model), of(model))
    return lambda x, y: step(x, y).item(), state


@refused("it reads a value, by Tensor.__bool__")
def a_branch():
    model = Net()

    def loss(x, y):
        value = of(model)(x, y)
        return value * 2 if value > 1 else value

    return usual(model, sgd(model), loss)


@refused("it reads a value, by Tensor.numpy")
def numpy_behind_its_back():
    model = Net()
    return usual(model, sgd(model), lambda x, y: (model(x) * torch.tensor(abs(x.numpy()[:, :3]))).mean())


@refused("it draws random numbers of Python's or NumPy's own")
def a_coin():
    model = Net()
    random.seed(0)  # the first draws are on one side
    return usual(model, sgd(model), lambda x, y: of(model)(x, y) * (1 if random.random() < 0.9 else 2))


@refused("it sets an option of an optimizer")
def a_rate_by_hand():
    model = Net()
    optimizer = sgd(model)
    rates = iter(range(1, 99))
    return usual(model, optimizer, of(model), lambda: optimizer.param_groups[0].update(lr=1 / next(rates)))


@refused("in the next, in a call of multiply")
def a_number_that_changes():
    model, rates = Net(), iter(range(1, 99))
    return usual(model, sgd(model), lambda x, y: of(model)(x, y) * (1 / next(rates)))


@refused("an array of shape [8] that no op made differs from step to step")
def an_array_that_changes():
    model, draw = Net(), np.random.default_rng(0)
    return usual(
        model,
        sgd(model),
        lambda x, y: (F.cross_entropy(model(x), y, reduction="none") * torch.tensor(draw.random(8))).sum(),
    )


@refused("a tensor of shape [8, 6] is replaced by another from step to step")
def a_state_that_is_carried():
    model, kept = Net(), [torch.zeros(8, 6)]

    def loss(x, y):
        value = of(model)(x + kept[0], y)
        kept[0] = x * 0.5
        return value

    return usual(model, sgd(model), loss)


@refused("it changes .requires_grad of a tensor")
def a_part_that_is_frozen_meanwhile():
    model = Net()

    def loss(x, y):
        model[0].requires_grad_(False)
        value = of(model)(x, y)
        model[0].requires_grad_(True)
        return value

    return usual(model, sgd(model), loss)


@refused("it changes a number or flag of a Counting")
def a_module_that_counts():
    class Counting(Net):
        calls = 0

        def forward(self, input):
            self.calls += 1
            return super().forward(input)

    model = Counting()
    return usual(model, sgd(model), of(model))


@refused("the shape of what index_by gives depends on elements")
def a_mask_that_selects():
    model = Net()

    def loss(x, y):
        out = model(x)
        return out[out > 0].sum()

    return usual(model, sgd(model), loss)


@refused("it returns a tensor whose backward is not part of the step")
def a_backward_outside():
    model = Net()
    return of(model), lambda: model.state_dict().values()


@refused("a tensor of shape [16, 6] is written to by something that is no op")
def memory_that_is_written_to_directly():
    model = Net()

    def write() -> None:
        model[0].weight._array[...] *= 0.5
        model[0].weight._versions[0] += 1

    return usual(model, sgd(model), of(model), write)
