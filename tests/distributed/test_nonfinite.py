"""NaN or infinity in a gradient of one rank: all ranks decide alike in that step, and name the rank."""

import numpy as np
import pytest
from replicas import batch_for, perceptron, ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import errors
from ddpgrad.distributed.algorithms.ddp_comm_hooks import default_hooks
from ddpgrad.distributed.ranks import world
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

SAID = "in step 2 the gradient of '2.{}' of rank 1 is not finite"


def steps(model: DDP, bad: float = float("nan"), scale: float = 1.0) -> list[bytes]:
    """Three steps, in the second of which rank 1 has a bad loss; the weights after each."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    x, y = batch_for(perceptron)
    weights = []
    for step in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) * scale
        try:
            (loss * bad if step == 1 and dist.get_rank() == 1 else loss).backward()
        finally:
            optimizer.step()
            weights.append(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    return weights


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("hooked", [False, True])
def test_a_step_is_left_out_on_all_ranks(n, bad, hooked, caplog):
    def program():
        model = DDP(perceptron(), nonfinite_gradients="skip", bucket_cap_mb=0.0001)
        if hooked:
            model.register_comm_hook(None, default_hooks.allreduce_hook)
        return steps(model, bad)

    told = ranks(n, program)
    assert all(weights == told[0] for weights in told)
    assert told[0][1] == told[0][0] != told[0][2]
    assert np.isfinite(np.frombuffer(told[0][2], np.float32)).all()
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned in ([f"step 2 is left out: {SAID[10:].format(part)}"] for part in ("bias", "weight"))


@pytest.mark.parametrize(("action", "kind"), [("raise", errors.DistributedError), ("stop", SystemExit)])
def test_all_ranks_end_in_the_same_step_with_their_weights(action, kind):
    def program():
        model = DDP(perceptron(), nonfinite_gradients=action, check_replicas_every=0)
        with pytest.raises(kind) as caught:
            steps(model)
        assert all(p.grad is None for p in model.parameters())
        assert all(bool(p.isfinite().all()) for p in model.parameters())
        return str(caught.value), model.reducer.steps

    first, *others = ranks(3, program)
    assert first[0].startswith((SAID.format("bias"), SAID.format("weight"))) and first[1] == 2
    assert others == [first] * 2


@pytest.mark.parametrize(
    ("n", "factor", "text"),
    [
        (1, 1e39, "gradient of '2.bias' of rank 0 is not finite"),
        (2, 2e38, "of all ranks are finite, and their average is not"),
    ],
)
def test_one_rank_alone_and_an_average_that_overflows(n, factor, text):
    def program():
        model = DDP(perceptron(), nonfinite_gradients="raise")
        (model(torch.ones(1, 6))[0, 0] * factor).backward()

    with pytest.raises(errors.DistributedError, match=text):
        ranks(n, program)


def test_finite_gradients_take_no_collective_more():
    def program(action):
        model = DDP(perceptron(), nonfinite_gradients=action)
        x, y = batch_for(perceptron)
        for _ in range(3):
            F.cross_entropy(model(x), y).backward()
        return world.current().progress.collectives

    watched, plain = (ranks(2, lambda action=action: program(action)) for action in ("raise", None))
    assert watched == plain


def test_ranks_that_differ_in_the_option_and_unknown_ones_are_refused():
    def differ():
        DDP(perceptron(), nonfinite_gradients="skip" if dist.get_rank() else None)

    with pytest.raises(
        errors.MismatchError,
        match="nonfinite_gradients=None on rank 0 and nonfinite_gradients=skip on rank 1",
    ):
        ranks(2, differ)
    with pytest.raises(ValueError, match="nonfinite_gradients must be one of"):
        ranks(1, lambda: DDP(perceptron(), nonfinite_gradients="ignore"))  # type: ignore[arg-type]
