"""What `DistributedDataParallel` keeps beside gradients: pickles, what is each rank's own, static graphs, what it tells."""

import io

import pytest
from replicas import batch_for, gradients, on_ranks, perceptron, ranks, share

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.errors import DistributedError
from ddpgrad.futures import Future
from ddpgrad.nn.parallel import DistributedDataParallel as DDP


def test_a_model_in_the_default_group_is_saved_whole():
    x, y = batch_for(perceptron)

    def program():
        ddp = DDP(perceptron(), bucket_cap_mb=1e-4, find_unused_parameters=True)
        F.cross_entropy(ddp(share(x)), share(y)).backward()
        file = io.BytesIO()
        torch.save(ddp, file)
        file.seek(0)
        again = torch.load(file, weights_only=False)
        assert again.find_unused_parameters and again.reducer.cap_bytes == ddp.reducer.cap_bytes
        again.zero_grad()
        F.cross_entropy(again(share(x)), share(y)).backward()
        first, second = gradients(ddp.module), gradients(again.module)
        assert all(first[name].tobytes() == second[name].tobytes() for name in first)
        pairs = dist.new_group([0, 1])
        with pytest.raises(RuntimeError, match="default process group"):
            torch.save(DDP(perceptron(), process_group=pairs), io.BytesIO())

    ranks(2, program)


@on_ranks(2)
def test_a_model_with_a_part_that_is_wrapped_loads_its_own_state():
    model = nn.ModuleDict({"head": nn.Linear(4, 2), "body": DDP(perceptron())})
    state = {name: value.clone() for name, value in model.state_dict().items()}
    assert "body.0.weight" in state
    for prefix in ("body.", "body.module."):
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
        model.load_state_dict({name.replace("body.", prefix): value for name, value in state.items()})
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    with pytest.raises(RuntimeError, match=r'Missing key.*"body.module.0.bias"'):
        model.load_state_dict({name: value for name, value in state.items() if name != "body.0.bias"})


def test_what_is_ignored_and_buffers_that_are_not_shared_stay_each_ranks_own():
    def program():
        rank = dist.get_rank()
        model = perceptron()
        model.register_buffer("mark", torch.full((1,), float(rank)))
        with torch.no_grad():
            model[0].weight.fill_(rank)
            model[2].weight.fill_(rank)
        model[1].add_module("own", nn.Linear(2, 2 + rank))  # of another shape, too, and unused
        DDP._set_params_and_buffers_to_ignore_for_model(model, ["0.weight", "1.own.weight", "1.own.bias"])
        ddp = DDP(model, broadcast_buffers=False)
        ddp(torch.ones(1, 6) * (rank + 1)).sum().backward()
        assert model[0].weight[0, 0].item() == model.mark.item() == rank
        assert model[2].weight[0, 0].item() == 0
        assert not DDP(perceptron(), forward_sync_buffers=False).broadcast_buffers
        return gradients(model)["2.bias"].tolist()

    assert ranks(2, program)[0] == [1.0] * 4


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
        return self.b(self.a(x)) if both else self.a(x)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("first", "words"),
    [(False, "unused in first iteration, but then got used"), (True, "but then got unused.*'b.weight'")],
)
@on_ranks(2)
def test_a_static_graph_stays_as_the_first_backward_was(first, words, later):
    ddp = DDP(Branches(), static_graph=not later)
    if later:
        ddp._set_static_graph()
    for _ in range(3):
        ddp.zero_grad()
        ddp(torch.ones(1, 2) * (dist.get_rank() + 1), first).sum().backward()
    assert (ddp.module.b.weight.grad is not None) == first
    assert first or ddp.module.a.weight.grad.tolist() == [[1.5, 1.5]] * 2
    with pytest.raises(DistributedError, match=f"(?s)Your training graph has changed.*{words}"):
        ddp(torch.ones(1, 2), not first).sum().backward()
    with pytest.raises(RuntimeError, match="should be called before training loop starts"):
        ddp._set_static_graph()
    told = ddp._get_ddp_logging_data()
    assert told["has_error"] and "before training loop" in told["error"]
    assert told["iteration"] == 3 and told["has_rebuilt_buckets"] and told["module_name"] == "Branches"
    assert told["num_parameter_tensors"] == 4 and told["total_parameter_size_bytes"] == 48


def test_what_follows_a_future_is_computed_once():
    """A hook's callback that adds up, such as PowerSGD's error, must not run again when the future is asked first."""
    calls: list[int] = []
    first = Future(lambda: 1)
    second = first.then(lambda done: calls.append(done.value()))
    second.wait()
    first.wait()
    assert calls == [1]
