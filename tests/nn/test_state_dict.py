"""state_dict and load_state_dict: what is in them, and what is said when they do not fit."""

from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad import nn


def model() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ModuleDict({"head": nn.Linear(3, 1, bias=False)})
    )


def test_layout_and_round_trip() -> None:
    torch.manual_seed(1)
    source, target = model(), model()
    source[1](source[0](torch.randn(4, 2)))
    state = source.state_dict()
    assert list(state) == [
        "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked",
        "2.head.weight",
    ]  # fmt: skip
    assert all(type(v) is torch.Tensor and not v.requires_grad for v in state.values())
    before = list(target.parameters())
    assert str(target.load_state_dict(state)) == "<All keys matched successfully>"
    for name, value in target.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert all(p is q for p, q in zip(target.parameters(), before, strict=True))
    assert int(target[1].num_batches_tracked) == 1
    assert next(iter(source.state_dict(prefix="net."))) == "net.0.weight"


def test_everything_that_is_wrong_is_listed_by_name() -> None:
    state = model().state_dict()
    del state["0.bias"]
    state["2.tail.weight"] = torch.ones(1)
    state["2.head.weight"] = torch.ones(1, 4)
    state["0.weight"] = [1.0]  # type: ignore[assignment]
    target = model()
    with pytest.raises(RuntimeError) as error:
        target.load_state_dict(state)
    message = str(error.value)
    assert message.startswith("Error(s) in loading state_dict for Sequential:")
    assert 'Unexpected key(s) in state_dict: "2.tail.weight"' in message
    assert 'Missing key(s) in state_dict: "0.bias"' in message
    assert "size mismatch for 2.head.weight" in message and "torch.Size([1, 4])" in message
    assert 'parameter named "0.weight"' in message and "received <class 'list'>" in message
    state["2.head.weight"], state["0.weight"] = torch.ones(1, 3), torch.ones(3, 2)
    missing, unexpected = target.load_state_dict(state, strict=False)
    assert (missing, unexpected) == (["0.bias"], ["2.tail.weight"])
    assert torch.equal(target[2]["head"].weight.detach(), torch.ones(1, 3))


@pytest.mark.parametrize(
    ("module", "given"),
    [
        (nn.Linear(2, 2, bias=False), nn.Linear(2, 2)),
        (nn.BatchNorm1d(2, affine=False), nn.BatchNorm1d(2)),
        (nn.BatchNorm1d(2, track_running_stats=False), nn.BatchNorm1d(2)),
    ],
)
def test_values_for_what_a_module_leaves_out_are_unexpected(module: nn.Module, given: nn.Module) -> None:
    with pytest.raises(RuntimeError, match="Unexpected key"):
        module.load_state_dict(given.state_dict())
    missing, unexpected = module.load_state_dict(given.state_dict(), strict=False)
    assert not missing and set(unexpected) == set(given.state_dict()) - set(module.state_dict())


def test_values_are_converted_or_taken_over() -> None:
    layer = nn.Linear(2, 2)
    values = {"weight": torch.ones(2, 2, dtype=torch.float64), "bias": torch.zeros(2, dtype=torch.float64)}
    layer.load_state_dict(values)
    assert layer.weight.dtype is torch.float32
    layer.requires_grad_(False)
    layer.load_state_dict(values, assign=True)
    assert layer.weight.dtype is torch.float64 and layer.weight.data_ptr() == values["weight"].data_ptr()
    assert isinstance(layer.weight, nn.Parameter) and not layer.weight.requires_grad


def test_extra_state_and_old_batch_norms() -> None:
    class Counting(nn.Module):
        count = 3

        def get_extra_state(self) -> Any:
            return self.count

        def set_extra_state(self, state: Any) -> None:
            self.count = state

    source, target = nn.Sequential(Counting()), nn.Sequential(Counting())
    source[0].count = 5
    assert source.state_dict() == {"0._extra_state": 5}
    target.load_state_dict(source.state_dict())
    assert target[0].count == 5
    with pytest.raises(RuntimeError, match=r'Missing.*"0._extra_state"'):
        target.load_state_dict({})

    norm = nn.BatchNorm2d(2)
    state = norm.state_dict()
    del state["num_batches_tracked"]
    state._metadata[""]["version"] = 1  # type: ignore[attr-defined]
    norm.load_state_dict(state)


def test_hooks() -> None:
    layer = nn.Sequential(nn.Linear(1, 1, bias=False))
    calls: list[str] = []
    layer[0].register_state_dict_pre_hook(lambda m, prefix, keep: calls.append(f"save {prefix}"))
    layer[0].register_state_dict_post_hook(lambda m, state, prefix, meta: state.update({prefix + "more": 1}))

    def rename(module: Any, state: Any, prefix: str, *rest: Any) -> None:
        state[prefix + "weight"] = state.pop(prefix + "more")

    state = layer.state_dict()
    assert calls == ["save 0."] and state["0.more"] == 1
    state["0.more"] = state.pop("0.weight")
    layer[0].register_load_state_dict_pre_hook(rename)
    layer.register_load_state_dict_post_hook(lambda m, keys: calls.append(f"loaded {keys}"))
    layer.load_state_dict(state)
    assert calls[-1] == "loaded <All keys matched successfully>"


def test_a_module_may_load_its_own_part_without_naming_what_is_missing() -> None:
    class Lenient(nn.Linear):
        def _load_from_state_dict(
            self, state: Any, prefix: str, metadata: Any, strict: bool, *lists: Any
        ) -> None:
            super()._load_from_state_dict(state, prefix, metadata, False, *lists)

    model = nn.Sequential(Lenient(1, 1), nn.Linear(1, 1))
    state = model.state_dict()
    del state["0.weight"]
    state["0.more"] = torch.ones(1)
    model.load_state_dict(state)
    del state["1.weight"]
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "1.weight"'):
        model.load_state_dict(state)


def test_what_collects_its_state_itself_finds_its_hooks() -> None:
    layer = nn.Linear(1, 1)
    assert not layer._state_dict_hooks
    hook = layer._register_state_dict_hook(lambda *args: None)
    assert len(layer._state_dict_hooks) == 1 and all(map(callable, layer._state_dict_hooks.values()))
    hook.remove()
    assert not layer._state_dict_hooks
