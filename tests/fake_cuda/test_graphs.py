"""CUDA graphs on the stand-in: a replay has the bits of an eager step, and is one launch; what cannot be captured says so."""

import copy
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakecuda
import pytest

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.utils.checkpoint import checkpoint

pytestmark = pytest.mark.fakegpu

STEPS = 7
WARM_UP = 2


class Block(nn.Module):
    """A part of a GPT: attention and a feed-forward network, both with dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out, self.drop = nn.Linear(width, width), nn.Dropout(0.1)
        self.feed = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(seen.transpose(1, 2).reshape(x.shape)))
        return x + self.drop(self.feed(x))


class Gpt(nn.Module):
    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.head, self.recompute = nn.Linear(8, 11), recompute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if self.recompute else block(h)
        return self.head(h).transpose(1, 2)


def task(kind: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model, and inputs and targets of each step."""
    torch.manual_seed(3)
    if kind.startswith("gpt"):
        tokens = torch.randint(0, 11, (STEPS, 3, 7)).cuda()
        return (
            Gpt(kind == "gpt recomputed").cuda(),
            tokens[..., :-1].contiguous(),
            tokens[..., 1:].contiguous(),
        )
    targets = torch.randint(0, 4, (STEPS, 8)).cuda()
    if kind == "mlp":
        layers = [nn.Linear(16, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 4)]
        return nn.Sequential(*layers).cuda(), torch.randn(STEPS, 8, 16).cuda(), targets
    layers = [
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
    ]
    return nn.Sequential(*layers, nn.Linear(64, 4)).cuda(), torch.randn(STEPS, 8, 1, 8, 8).cuda(), targets


def course(
    kind: str, make: Callable[[Any], torch.optim.Optimizer], captured: bool, scaled: bool = False
) -> tuple[list[float], list[list[float]], list[dict[str, int]]]:
    """Losses, the final parameters, and what each step from the first replay on asked of the GPU."""
    model, inputs, targets = task(kind)
    optimizer = make(model.parameters())
    scaler = torch.amp.GradScaler("cuda", init_scale=64.0, growth_interval=2, enabled=scaled)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.float16, enabled=scaled):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss

    run: Any = torch.cuda.captured_step(step, warmup=WARM_UP) if captured else step
    losses, asked = [], []
    torch.manual_seed(5)
    for i, (x, y) in enumerate(zip(inputs, targets, strict=True)):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 / (1 + i)  # as a schedule would
        before = fakecuda.counters()
        loss = run(x, y)
        after = fakecuda.counters()
        losses.append(loss.detach())
        asked.append({name: n - before[name] for name, n in after.items()})
        assert not captured or run.why_not is None, run.why_not
    return (
        [float(loss) for loss in losses],
        [p.flatten().tolist() for p in model.parameters()],
        asked[WARM_UP + 1 :],
    )


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "AdamW": lambda p: torch.optim.AdamW(p, capturable=True),
    "fused AdamW": lambda p: torch.optim.AdamW(p, capturable=True, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "NAdam": lambda p: torch.optim.NAdam(p, capturable=True),
    "Adamax": lambda p: torch.optim.Adamax(p, capturable=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, capturable=True, momentum=0.5),
    "Adadelta": lambda p: torch.optim.Adadelta(p, capturable=True),
    "Rprop": lambda p: torch.optim.Rprop(p, capturable=True),
    "RAdam": lambda p: torch.optim.RAdam(
        p, capturable=True
    ),  # of which the sixth step is the first with a scale
    "ASGD": lambda p: torch.optim.ASGD(p, t0=4, capturable=True),
}


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        ("mlp", "AdamW"), ("cnn", "AdamW"), ("gpt", "AdamW"), ("gpt recomputed", "AdamW"), ("gpt scaled", "fused AdamW"),
        *(("mlp", name) for name in OPTIMIZERS if "AdamW" not in name),
    ],
)  # fmt: skip
def test_a_captured_step_has_the_bits_of_an_eager_one_and_is_one_launch(kind: str, optimizer: str):
    make, scaled = OPTIMIZERS[optimizer], kind == "gpt scaled"
    eager, captured = (course(kind, make, captured, scaled) for captured in (False, True))
    assert captured[:2] == eager[:2]
    assert len(set(captured[0])) == STEPS and len(captured[2]) == STEPS - WARM_UP - 1
    for asked in captured[2]:
        assert asked["graph_launches"] == 1 and asked["launches"] == asked["synchronisations"] == 0, asked
        assert asked["to_device"] == 1 and asked["to_host"] == 0, asked  # the cells


def test_a_replay_reads_and_writes_the_same_memory_which_nobody_else_gets():
    x = torch.zeros(1000, device="cuda")
    g = torch.cuda.CUDAGraph()
    torch.exp(x * 2).sum()
    with torch.cuda.graph(g):
        assert torch.cuda.is_current_stream_capturing()
        between = torch.exp(x * 2)
        out = between.sum()
        del between
    assert not torch.cuda.is_current_stream_capturing()
    others = [torch.full((1000,), 7.0, device="cuda") for _ in range(20)]
    for value in (0.0, 1.0, -1.0):
        x.fill_(value)
        g.replay()
        assert float(out) == float(torch.exp(x * 2).sum())
    assert all(float(other.sum()) == 7000 for other in others)
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=g.pool()):
        doubled = out * 2
    g.replay()
    second.replay()
    assert second.pool() == g.pool() != torch.cuda.graph_pool_handle()
    assert float(doubled) == 2 * float(out)
    g.reset()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        g.replay()


def test_random_numbers_of_replays_are_those_of_an_eager_run():
    def draw() -> torch.Tensor:
        return torch.cat(
            [
                F.dropout(torch.ones(40, device="cuda"), 0.5),
                torch.randn(6, device="cuda"),
                torch.rand(6, device="cuda"),
            ]
        )

    torch.manual_seed(1)
    eager = [draw().tolist() for _ in range(4)]
    torch.manual_seed(1)
    assert draw().tolist() == eager[0]
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        out = draw()
    for numbers in eager[1:]:
        g.replay()
        assert out.tolist() == numbers


def graphed_course(graphed: bool) -> list[Any]:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.2)).cuda()
    head = nn.Linear(8, 3).cuda()
    x = torch.randn(5, 4, 6).cuda()
    y = torch.randint(0, 3, (5, 4)).cuda()
    loss_of: Any = lambda out, target: F.cross_entropy(out, target)  # noqa: E731
    parts: Any = (model, head, loss_of)
    if graphed:
        samples = (
            (torch.zeros(4, 6, device="cuda"),),
            (torch.zeros(4, 8, device="cuda", requires_grad=True),),
            (torch.zeros(4, 3, device="cuda", requires_grad=True), torch.zeros_like(y[0])),
        )
        parts = torch.cuda.make_graphed_callables(parts, samples)
        assert parts[0] is model
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    torch.manual_seed(4)
    found: list[Any] = []
    for step, (a, b) in enumerate(zip(x, y, strict=True)):
        before = fakecuda.counters()["graph_launches"]
        loss = parts[2](parts[1](parts[0](a)), b)
        loss.backward()
        assert fakecuda.counters()["graph_launches"] - before == (6 if graphed else 0)
        found.append(float(loss))
        if step % 2:  # gradients of two steps add up
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    return [*found, model(x[0]).tolist(), model[0].weight.tolist()]


def test_graphed_callables_train_as_plain_ones_do():
    assert graphed_course(True) == graphed_course(False)


def refused(block: Callable[[], Any]) -> str:
    block_of = torch.cuda.CUDAGraph()
    with pytest.raises(torch.errors.CaptureError) as told, torch.cuda.graph(block_of):
        block()
    with pytest.raises(RuntimeError, match="without a preceding"):
        block_of.replay()
    return str(told.value)


def test_what_cannot_be_captured_is_an_error_that_names_the_call_and_the_line():
    x = torch.ones(3, device="cuda")
    x.sum().item()
    told = refused(lambda: x.sum().item())
    assert "`told = refused(lambda: x.sum().item())` at" in told and f"{Path(__file__).name}:" in told, told
    assert "a graph neither waits for the GPU nor copies from the host" in told
    for block in (
        lambda: float(x[0]),
        lambda: x.cpu(),
        lambda: x.nonzero(),
        lambda: bool((x > 0).all()),
        torch.cuda.synchronize,
        lambda: torch.tensor([1.0, 2.0], device="cuda"),
        lambda: torch.ones(3).cuda(),
        lambda: x.sort(),
        lambda: x[torch.tensor([0, 1])],
        lambda: x.multinomial(2),
    ):
        assert f"{Path(__file__).name}:" in refused(block)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        chosen = x[[0, 2]] * torch.tensor(2.0)  # what the program wrote down is a constant
    g.replay()
    assert chosen.tolist() == [2, 2]
    # The GPU is as usable as before, and a block's own errors stay what they are.
    assert x.sum().item() == 3
    with pytest.raises(KeyError, match="mine"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        raise KeyError("mine")
    with pytest.raises(RuntimeError, match="non-default stream"):
        torch.cuda.CUDAGraph().capture_begin()


@pytest.mark.parametrize("collective", [dist.all_reduce, lambda x: dist.broadcast(x, 0)])
def test_collectives_of_host_memory_are_refused_whichever_way_they_take(collective):
    dist.init_process_group()
    try:
        for _ in range(2):  # the second of its kind is known
            assert "takes place on the host" in refused(lambda: collective(torch.ones(3)))
    finally:
        dist.destroy_process_group()


def test_optimizers_refuse_what_replays_would_repeat():
    w = torch.ones(3, device="cuda", requires_grad=True)
    w.grad = torch.ones(3, device="cuda")
    plain = torch.optim.AdamW([w])
    plain.step()
    assert "param_groups' capturable is False" in refused(plain.step)
    assert "depends on what the host counts" in refused(torch.optim.Adagrad([w]).step)
    assert "state 'step' does not exist" in refused(torch.optim.AdamW([w], capturable=True).step)


def test_a_step_that_cannot_be_captured_runs_eagerly_and_says_why_once():
    torch.manual_seed(0)
    model = nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[float] = []

    @torch.cuda.captured_step(warmup=1)
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        seen.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        return loss

    x = torch.ones(3, 4, device="cuda")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        losses = [float(step(x)) for _ in range(4)]
    assert losses == seen and losses == sorted(losses, reverse=True) and len(set(losses)) == 4
    assert len(told) == 1 and "step runs eagerly, not as a captured step: " in str(told[0].message)
    assert "`seen.append(loss.item())` at" in (step.why_not or "") and all(
        p.grad is None for p in model.parameters()
    )
    on_host = torch.cuda.captured_step(lambda value: value * 2)
    with pytest.warns(UserWarning, match="input 0 is on cpu, not on the current GPU"):
        assert on_host(torch.ones(2)).tolist() == [2, 2]


def test_another_thread_may_page_lock_memory_while_a_step_is_captured():
    """As that of a DataLoader does."""
    kept: list[torch.Tensor] = []

    def step(x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=lambda: kept.append(torch.ones(1000).pin_memory()))
        thread.start()
        thread.join()
        return x * 2

    run = torch.cuda.captured_step(step, warmup=1)
    for _ in range(3):
        assert run(torch.ones(3, device="cuda")).tolist() == [2.0] * 3
    assert run.why_not is None and len(kept) == 2


def test_a_captured_step_follows_shapes_and_an_optimizer_that_is_loaded():
    def run(captured: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Linear(4, 2).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), capturable=True)

        def step(x: torch.Tensor, power: int) -> torch.Tensor:
            loss = (model(x) ** power).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        made: Any = torch.cuda.captured_step(step, warmup=1) if captured else step
        losses: list[torch.Tensor] = []
        state: list[Any] = []
        for i in range(12):
            losses.append(made(torch.ones(3 + i % 2, 4, device="cuda") * (i + 1), 2 + 2 * (i % 2)))
            if i == 3:
                state = [
                    model.weight.detach().clone(),
                    model.bias.detach().clone(),
                    copy.deepcopy(optimizer.state_dict()),
                ]
            if i == 7:
                with torch.no_grad():
                    model.weight.copy_(state[0])
                    model.bias.copy_(state[1])
                optimizer.load_state_dict(state[2])
                if captured:
                    assert made.why_not is None
                    with pytest.warns(UserWarning, match="parameters or state of AdamW lie elsewhere"):
                        losses.append(made(torch.ones(3, 4, device="cuda"), 2))
                else:
                    losses.append(made(torch.ones(3, 4, device="cuda"), 2))
        return [float(loss) for loss in losses]

    assert run(True) == run(False)
