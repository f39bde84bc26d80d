"""Parameters and buffers of lazy modules before the first input: what they refuse, and how they get a shape."""

import copy
import pickle

import pytest

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.nn.modules.lazy import LazyModuleMixin
from ddpgrad.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy


@pytest.mark.parametrize("make", [UninitializedParameter, UninitializedBuffer])
def test_without_a_shape_nothing_can_be_computed(make):
    t = make(dtype=torch.float64)
    for use in (
        lambda: t + 1,
        lambda: 1 - t,
        t.sum,
        t.numel,
        lambda: t[0],
        t.detach,
        lambda: nn.init.zeros_(t),
    ):
        with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
            use()
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter or buffer"):
        print(t.shape)
    with pytest.raises(RuntimeError, match="Can't share memory"):
        t.share_memory_()
    with pytest.raises(RuntimeError, match="Can't share memory"):
        nn.LazyLinear(2).share_memory()
    for twin in (t, copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert is_lazy(twin) and repr(twin) == f"<{make.__name__}>" and twin.dtype is torch.float64
    t.materialize((2, 3))
    assert not is_lazy(t) and t.shape == (2, 3) and t.dtype is torch.float64


def test_running_statistics_wait_for_the_first_input():
    lazy = nn.LazyBatchNorm1d().double()
    assert list(lazy.state_dict()) == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    assert isinstance(lazy.running_mean, UninitializedBuffer) and lazy.has_uninitialized_params()
    source = nn.BatchNorm1d(3).double()
    source(torch.randn(5, 3, dtype=torch.float64))
    lazy.load_state_dict(source.state_dict())
    assert not lazy.has_uninitialized_params()
    x = torch.randn(4, 3, dtype=torch.float64)
    assert torch.equal(lazy.eval()(x), source.eval()(x)) and type(lazy) is nn.BatchNorm1d
    assert lazy.num_features == 3 and lazy.running_mean.dtype is torch.float64
    nn.LazyLinear(2).load_state_dict(nn.LazyLinear(2).state_dict())
    with pytest.raises(RuntimeError, match="Can't access the shape"):
        source.load_state_dict(nn.LazyBatchNorm1d().state_dict())
    assert nn.LazyBatchNorm2d(device="meta")(torch.ones(2, 3, 4, 4, device="meta")).is_meta


class Scaled(nn.Module):
    """x times a buffer."""

    scale: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class LazyScaled(LazyModuleMixin, Scaled):
    """A module of a user's, as PyTorch's documentation has it."""

    cls_to_become = Scaled

    def __init__(self, learns: bool = True) -> None:
        super().__init__()
        self.scale = UninitializedBuffer()
        self.learns = learns

    def initialize_parameters(self, input: torch.Tensor) -> None:
        if self.learns:
            assert isinstance(self.scale, UninitializedBuffer)
            self.scale.materialize(input.shape[-1:])
            self.scale.fill_(2.0)


def test_a_users_lazy_module():
    module = LazyScaled()
    assert list(dict(module.named_buffers())) == ["scale"]
    assert module(torch.ones(1, 3)).tolist() == [[2.0, 2.0, 2.0]] and type(module) is Scaled
    with pytest.raises(RuntimeError, match="LazyScaled has not been fully initialized"):
        LazyScaled(learns=False)(torch.ones(1, 3))


def test_materialize_takes_one_size():
    t = UninitializedParameter()
    t.materialize(3)
    assert type(t) is nn.Parameter and t.shape == (3,)
