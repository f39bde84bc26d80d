"""A captured step on a CPU: the same bits as eager steps, or an eager step and the reason why."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from captured_programs import CAPTURED, REFUSED, Net, Program, of, sgd, usual

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.core.taping import taping


def trained(program: Program, capture: bool) -> tuple[list[Any], str | None, str]:
    """The bits of nine steps, why the last was no replay, and the code of the replays."""
    torch.manual_seed(0)
    step, state = program()
    run: Any = torch.captured_step(step, warmup=1) if capture else step
    draw, bits = np.random.default_rng(1), []
    for _ in range(9):
        x = torch.tensor(draw.standard_normal((8, 6)).astype(np.float32))
        result = run(x, torch.tensor(draw.integers(0, 3, 8)))
        leaves = torch.utils._pytree.tree_leaves(result)
        bits.append([t.detach().numpy().tobytes() if isinstance(t, torch.Tensor) else t for t in leaves])
    bits.append([t.detach().numpy().tobytes() for t in state()])
    assert taping.now is None
    return bits, getattr(run, "why_not", None), getattr(run, "code", "")


@pytest.mark.parametrize("name", CAPTURED)
def test_a_captured_step_has_the_bits_of_an_eager_one(name: str):
    eager, _, _ = trained(CAPTURED[name], False)
    again, why_not, code = trained(CAPTURED[name], True)
    assert why_not is None and again == eager
    assert code.startswith("def replay(v0, v1):") and "zero_grad" in code + "zero_grad" * ("zero" not in name)


@pytest.mark.parametrize("name", REFUSED)
def test_a_step_that_cannot_be_repeated_runs_eagerly_and_says_why_once(name: str):
    program, why = REFUSED[name]
    eager, _, _ = trained(program, False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        again, why_not, code = trained(program, True)
    assert again == eager and why in (why_not or "") and not code
    (said,) = [str(w.message) for w in told if "runs eagerly" in str(w.message)]
    assert why in said and said.startswith(("step runs eagerly", "<lambda> runs eagerly"))


def test_what_changes_between_steps_is_noticed():
    def run(capture: bool) -> list[float]:
        torch.manual_seed(0)
        model = Net()
        step, _ = usual(model, torch.optim.SGD(model.parameters(), 0.1), of(model))
        run: Any = torch.captured_step(step, warmup=1) if capture else step
        losses = []
        for i in range(36):
            if i == 5:
                model[3].p = 0.6
            if i == 10:
                model.eval()
            if i == 20:
                model[2].register_forward_hook(lambda module, args, out: out * 2)
            if i == 16:
                model[0].weight.data = model[0].weight.data.double().float() * 0.5
            rows = 8 if i % 3 else 6
            draw = np.random.default_rng(i)
            x = torch.tensor(draw.standard_normal((rows, 6)).astype(np.float32))
            losses.append(float(run(x, torch.tensor(draw.integers(0, 3, rows)))))
        assert not capture or run.why_not is None
        return losses

    with pytest.warns(UserWarning, match="changed"):
        captured_losses = run(True)
    assert captured_losses == run(False)


class Scaled(nn.Module):
    """A layer whose forward reads what no tensor says."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scales, self.mask = nn.Linear(6, 3), [1.0, 2.0], torch.ones(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return factor * self.layer(x) * self.scales[0] * self.mask


def double(module: nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
    return out * 2


factor = 1.0


class Rates:
    """What a program keeps in objects of its own."""

    shared = 1.0

    def __init__(self) -> None:
        self.deep = {"rates": [1.0]}
        self.bits = np.ones(3, np.float32)

    def of(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self.deep["rates"][0] * self.shared * torch.tensor(self.bits)


def _set_factor(net: Any, read: dict[str, Any]) -> Any:
    global factor
    factor = 2.0


# What is done to the model, or to what the step reads, once it is replayed; something that is to be undone.
CHANGES: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "a closure": lambda net, read: read.update(weight=3.0),
    "a tensor of a closure": lambda net, read: read.update(classes=torch.tensor([1.0, 2.0, 3.0])),
    "a global": _set_factor,
    "a list of a module": lambda net, read: net[0].scales.__setitem__(0, 3.0),
    "a tensor of a module": lambda net, read: setattr(net[0], "mask", torch.tensor([1.0, 0.0, 1.0])),
    "a parameter": lambda net, read: setattr(net[0].layer, "bias", nn.Parameter(torch.ones(3))),
    "a child": lambda net, read: net.__setitem__(1, nn.Tanh()),
    "a new child": lambda net, read: net.append(nn.Tanh()),
    "a child less": lambda net, read: net.__delitem__(1),
    "a forward": lambda net, read: setattr(net[1], "forward", torch.tanh),
    "a hook of all modules": lambda net, read: nn.modules.module.register_module_forward_hook(double),
    "a list in an object": lambda net, read: read["rates"].deep["rates"].__setitem__(0, 2.0),
    "an attribute of a class": lambda net, read: setattr(read["rates"], "shared", 2.0),
    "an array of NumPy's": lambda net, read: read["rates"].bits.__setitem__(0, 2.0),
    "the default type": lambda net, read: torch.set_default_dtype(torch.float64),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_the_python_of_a_step_reads_is_compared(change: str, monkeypatch):
    def run(capture: bool) -> list[Any]:
        monkeypatch.setitem(globals(), "factor", 1.0)
        torch.manual_seed(0)
        net = nn.Sequential(Scaled(), nn.ReLU())
        read: dict[str, Any] = {"weight": 1.0, "classes": torch.ones(3), "rates": Rates()}

        optimizer = torch.optim.SGD(net.parameters(), 0.1)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y, weight=read["classes"]) * read["weight"] * torch.ones(())
            loss = read["rates"].of(loss).sum()
            loss.backward()
            optimizer.step()
            return loss

        called: Any = torch.captured_step(step, warmup=1) if capture else step
        x = torch.arange(12.0).reshape(2, 6) / 12
        undo, bits = None, []
        try:
            for i in range(9):
                if i == 5:
                    assert not capture or called.code
                    undo = CHANGES[change](net, read)
                loss = called(x, torch.tensor([0, 2]))
                bits.append((str(loss.dtype), loss.item()))
        finally:
            torch.set_default_dtype(torch.float32)
            if isinstance(undo, torch.utils.hooks.RemovableHandle):
                undo.remove()
        assert not capture or called.why_not is None
        return bits

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(True) == run(False)


def test_inputs_that_lie_otherwise_are_of_another_kind():
    @torch.captured_step(warmup=1)
    def step(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((4,), (1,)).clone()

    rows = torch.arange(8.0).reshape(4, 2)
    assert [step(torch.arange(4.0)).tolist() for _ in range(4)] == [[0, 1, 2, 3]] * 4 and step.code
    assert step(rows[:, 0]).tolist() == [0, 1, 2, 3]
    in_place = torch.captured_step(lambda x: x.mul_(2), warmup=1)
    for _ in range(4):
        in_place(torch.ones(3))
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        in_place(torch.ones(1).expand(3))


def test_a_replay_that_fails_leaves_nothing_half_done():
    model = Net()
    hook: list[Any] = []
    model[0].weight.register_hook(lambda g: hook[0](g) if hook else None)
    step, _ = usual(model, sgd(model), of(model))
    run: Any = torch.captured_step(step, warmup=1)
    x, y = torch.randn(8, 6), torch.zeros(8, dtype=torch.int64)
    for _ in range(4):
        run(x, y)
    hook.append(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(x, y)
    hook.clear()
    assert run.why_not is None and torch.is_grad_enabled()
    assert torch.isfinite(run(x, y))


def test_what_is_around_a_step_makes_another_one():
    model = Net()
    step, _ = usual(model, sgd(model), of(model))
    seen: list[str] = []

    @torch.captured_step(warmup=1)
    def infer(x: torch.Tensor) -> torch.Tensor:
        seen.append("eager")
        with torch.no_grad():
            return model(x)

    @torch.captured_step(warmup=1)
    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        step(x, y)
        return infer(x).sum()

    x, y = torch.randn(8, 6), torch.zeros(8, dtype=torch.int64)
    model.eval()
    for _ in range(5):
        out = infer(x)
    assert len(seen) == 3 and infer.why_not is None and torch.equal(out, model(x))
    with torch.autocast("cpu"):
        assert infer(x).dtype is torch.bfloat16
    assert infer(x).dtype is torch.float32
    with torch.autograd.set_detect_anomaly(True), pytest.warns(UserWarning, match="anomaly detection is on"):
        infer(x)
    seen.clear()
    for _ in range(5):
        both(x, y)
    assert len(seen) == 2 and both.why_not is None and "SGD" in both.code


def test_a_step_that_raises_while_it_is_recorded_is_recorded_in_a_later_call():
    model, broken = Net(), [False]
    step, _ = usual(model, sgd(model), of(model))

    @torch.captured_step(warmup=1)
    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = step(x, y)
        if broken[0]:
            raise ValueError("the program's own")
        return loss

    x, y = torch.randn(8, 6), torch.zeros(8, dtype=torch.int64)
    run(x, y)
    broken[0] = True
    with pytest.raises(ValueError, match="the program's own"):
        run(x, y)
    broken[0] = False
    for _ in range(4):
        run(x, y)
    assert taping.now is None and run.why_not is None and run.code and x.sum().item() == float(x.sum())


def test_an_argument_is_not_taken_for_the_same_tensor_reached_otherwise():
    kept = torch.randn(8, 6)
    other = kept.detach()

    def step(x: torch.Tensor) -> torch.Tensor:
        return x + 2 * kept + 4 * other

    run: Any = torch.captured_step(step, warmup=1)
    for x in (kept, kept, kept, kept, torch.zeros(8, 6)):
        assert torch.equal(run(x), step(x))
    assert run.why_not is None


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"device": "gpu"}, ValueError, "captures steps on 'cpu' or 'cuda', got device='gpu'"),
        ({"warmup": 0}, ValueError, "warmup >= 1, got 0"),
        ({"warmup": "3"}, ValueError, "warmup >= 1, got '3'"),
        ({"function": 5}, TypeError, "takes the function of a step, got int"),
    ],
)
def test_wrong_arguments_are_refused_at_once(wrong: dict[str, Any], error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        torch.captured_step(**{"function": torch.sum, **wrong})


@pytest.mark.parametrize(
    "function",
    [torch.unique, torch.unique_consecutive, lambda x: torch.histogram(x, 3).hist],
    ids=["unique", "unique_consecutive", "histogram"],
)
def test_functions_of_elements_that_are_no_ops_are_not_taken_for_constants(function: Any):
    captured = torch.captured_step(function, warmup=1)
    x = torch.arange(6.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for given in (x, x, x, x // 2, x // 3):  # alike while it is recorded
            assert torch.equal(captured(given), function(given))
    assert "elements" in (captured.why_not or "")
