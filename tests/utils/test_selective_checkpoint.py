"""Selective checkpoints: the results of some ops are kept, the others computed again."""

from functools import partial
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad.nn import functional as F
from ddpgrad.utils._python_dispatch import TorchDispatchMode
from ddpgrad.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
RESULTS = ("aten.addmm.default", "aten.relu.default", "aten.native_layer_norm.default", "aten.exp.default")


class Log(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def layers(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(F.relu(F.linear(x, w, b)), (4,)).exp()


def inputs() -> list[Any]:
    return [
        torch.arange(1.0, 1 + n).sin().view(s).requires_grad_()
        for n, s in ((6, (2, 3)), (12, (4, 3)), (4, (4,)))
    ]


def run(policy: Any, function: Any = layers) -> tuple[list[Any], list[str]]:
    given = inputs()
    context_fn = partial(create_selective_checkpoint_contexts, policy)
    out = checkpoint(function, *given, use_reentrant=False, context_fn=context_fn)
    with Log() as log:
        out.sum().backward()
    return [t.grad for t in given], [name for name in log.seen if name in RESULTS]


@pytest.mark.parametrize("kept", [(), (0,), (2,), (0, 1, 3)])
def test_what_is_kept_is_not_computed_again(kept):
    ops = [aten.addmm.default, aten.relu.default, aten.native_layer_norm.default, aten.exp.default]
    given = inputs()
    layers(*given).sum().backward()
    grads, again = run([ops[i] for i in kept])
    assert again == [str(op) for i, op in enumerate(ops) if i not in kept]
    for grad, t in zip(grads, given, strict=True):
        assert torch.allclose(grad, t.grad, atol=1e-6)


def test_a_policy_is_asked_about_results_once():
    asked = []

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        asked.append((str(op), context.is_recompute, context.op_output is not None))
        return CheckpointPolicy.MUST_SAVE if op is aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE

    assert run(policy)[1] == list(RESULTS[1:])
    assert ("aten.addmm.default", False, True) in asked and len(asked) == 5


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"aten\.mm\.default"):
        create_selective_checkpoint_contexts([aten.mm])
    with pytest.raises(TypeError, match="function or a list"):
        create_selective_checkpoint_contexts(3)
    with pytest.raises(RuntimeError, match="has been mutated"):
        run([aten.addmm.default], lambda x, w, b: F.linear(x, w, b).relu_().sin())
    given = inputs()
    context_fn = partial(create_selective_checkpoint_contexts, [aten.addmm.default])
    out = checkpoint(layers, *given, use_reentrant=False, context_fn=context_fn).sum()
    out.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="backward an extra time"):
        out.backward()
