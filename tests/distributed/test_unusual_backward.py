"""Backward passes that are not one forward's: gradients are those of one process on the joined batch."""

import numpy as np
import pytest
from replicas import gradients, ranks, share

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.nn.parallel import DistributedDataParallel as DDP
from ddpgrad.utils.checkpoint import checkpoint

SMALL, LARGE = 4, 128  # gradients of large weights are written into buckets by the product that makes them


class Twice(nn.Module):
    """A part that is used twice, each time within a checkpoint if that is not None."""

    def __init__(self, use_reentrant: bool | None = None, width: int = SMALL) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.part, self.last = (nn.Linear(width, width, dtype=torch.float64) for _ in range(3))
        self.use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        for _ in range(2):
            if self.use_reentrant is None:
                h = self.part(h).tanh()
            else:
                h = checkpoint(lambda h: self.part(h).tanh(), h, use_reentrant=self.use_reentrant)
        return self.last(h)


def penalty(model, x):
    """The loss and the mean square of its gradient by the input, which is differentiated again."""
    x = x.clone().requires_grad_()
    out = model(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (out.square().mean() + slope.square().mean()).backward()


def several_forwards(model, x):
    first, second = model(x), model(x * 2)
    (first.square().mean() + (second * first).mean()).backward()


def usual(model, x):
    model(x).square().mean().backward()


CASES = {
    "a gradient penalty": (penalty, None, {}),
    "several forwards": (several_forwards, None, {}),
    "used twice": (usual, None, {}),
    "used twice, checkpointed": (usual, False, {}),
    "used twice, checkpointed, several forwards": (several_forwards, False, {}),
    "used twice, reentrant, with a static graph": (usual, True, {"static_graph": True}),
}


def batch(width):
    return torch.tensor(np.random.default_rng(0).normal(size=(2 * width, width)))


@pytest.mark.parametrize(
    ("shard", "width"),
    [(False, SMALL), (False, LARGE), (True, SMALL)],
    ids=["ddp", "ddp, large", "fully_shard"],
)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_one_process_on_the_joined_batch(name, shard, width):
    step, use_reentrant, options = CASES[name]
    alone, x = Twice(use_reentrant, width), batch(width)
    for _ in range(2):
        step(alone, x)

    def program():
        model = Twice(use_reentrant, width)
        if shard:
            fully_shard(model.part)
            fully_shard(model)
        else:
            model = DDP(model, **options)
        for _ in range(2):  # the second adds to the first, and buckets are laid out anew between them
            step(model, share(x))
        if shard:
            return {n: p.grad.full_tensor().numpy() for n, p in model.named_parameters()}
        return gradients(model.module)

    for found in ranks(2, program):
        for key, want in gradients(alone).items():
            np.testing.assert_allclose(found[key], want, rtol=1e-8, atol=1e-12, err_msg=key)


def test_what_a_program_is_shown_of_a_large_gradient_is_not_written_to_later():
    def program():
        model = DDP(Twice(width=LARGE))
        weight, x = model.module.last.weight, batch(LARGE)
        shown, copies = [], []

        def show(gradient):
            shown.append(gradient)
            copies.append(gradient.clone())

        usual(model, x)  # after which buckets are laid out anew
        model.zero_grad()
        out = model(x)
        out.grad_fn.register_hook(lambda inputs, outputs: show(inputs[1]))
        out.square().sum().backward()
        model.zero_grad()
        show(torch.autograd.grad(model(x).square().sum(), [weight])[0])
        handle = weight.register_hook(show)
        usual(model, x)
        handle.remove()
        model.zero_grad()
        usual(model, 3 * x)
        return [torch.equal(a, b) for a, b in zip(shown, copies, strict=True)]

    assert ranks(1, program) == [[True] * 3]


def test_a_callback_that_queues_another_finds_averages_there():
    """As libraries look at averaged gradients, from a hook on a gradient of this rank."""

    def program():
        queue = torch.autograd.Variable._execution_engine.queue_callback
        parts = nn.Linear(2, 1, bias=False)
        parts.unused = nn.Parameter(torch.ones(1))  # its bucket is sent when backward ends
        model, weight, seen = DDP(parts, find_unused_parameters=True), parts.weight, []
        weight.register_hook(lambda g: queue(lambda: queue(lambda: seen.append(weight.grad.tolist()))))
        model(torch.full((1, 2), float(torch.distributed.get_rank()))).sum().backward()
        return seen

    assert ranks(2, program) == [[[[0.5, 0.5]]]] * 2


@pytest.mark.parametrize("shard", [False, True], ids=["ddp", "fully_shard"])
@pytest.mark.parametrize("width", [SMALL, LARGE])
def test_gradients_that_a_program_keeps_are_not_those_of_the_next_backward(shard, width):
    def program():
        model, x = Twice(width=width), share(batch(width))
        model = fully_shard(model) if shard else DDP(model, find_unused_parameters=True)
        usual(model, x)  # after which buckets are laid out anew
        kept, copies = [], []
        for scale in (1.0, 2.0, 3.0):
            model.zero_grad()
            usual(model, scale * x)
            kept += [p.grad for p in model.parameters()]
            copies += [p.grad.detach().clone() for p in model.parameters()]
        model.zero_grad()
        usual(model, x)
        views = [
            view
            for p in model.parameters()
            for view in (
                local(p.grad.detach()),
                local(p.grad).view(-1),
                local(p.grad).data.view(-1),
                local(p.grad).numpy(),
                local(p.grad.data).numpy(),
            )
        ]
        halves = [torch.tensor(view.tolist()) for view in views]
        for p in model.parameters():  # it is one memory until the next backward
            local(p.grad).numpy()[...] *= 2
        assert all(
            torch.equal(torch.tensor(view.tolist()), 2 * half)
            for view, half in zip(views, halves, strict=True)
        )
        before, factor = [torch.tensor(view.tolist()) for view in views], torch.ones((), requires_grad=True)
        product = (factor * local(next(model.parameters()).grad)).sum()
        model.zero_grad()
        usual(model, 2 * x)
        assert all(torch.equal(torch.tensor(a.tolist()), b) for a, b in zip(views, before, strict=True))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
        model.zero_grad()
        if not shard:
            (model.module.first(x).sum() + 0 * model(x).sum()).backward()
        same = [torch.equal(local(a), local(b)) for a, b in zip(kept, copies, strict=True)]
        return all(same), len({id(gradient) for gradient in kept}) == len(kept)

    def local(gradient):
        return gradient.to_local() if shard else gradient

    assert ranks(2, program) == [(True, True)] * 2
