"""Rules and hooks of `nn.Module` against PyTorch: the same program runs in both, and logs what it sees."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch as oracle

import ddpgrad

Program = Callable[[Any], Any]  # of either stack; gives names, numbers, texts and arrays

PROGRAMS: dict[str, Program] = {}


def _program(function: Program) -> Program:
    PROGRAMS[function.__name__.strip("_").replace("_", " ")] = function
    return function


def _net(t: Any) -> Any:
    class Net(t.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = t.nn.Linear(2, 3)
            self.rest = t.nn.Sequential(t.nn.BatchNorm1d(3), t.nn.ReLU())
            self.again = self.first
            self.register_buffer("scale", t.ones(3))
            self.register_parameter("absent", None)
            self.register_buffer("nothing", None)

        def forward(self, x: Any) -> Any:
            return self.rest(self.first(x)) * self.scale

    return Net()


@_program
def _hooks_on_registration(t: Any) -> Any:
    log: list[Any] = []
    of_all = t.nn.modules.module
    handles = [
        of_all.register_module_parameter_registration_hook(lambda m, n, p: log.append(("parameter", n))),
        of_all.register_module_buffer_registration_hook(lambda m, n, b: log.append(("buffer", n))),
        of_all.register_module_module_registration_hook(lambda m, n, c: log.append((type(m).__name__, n))),
    ]
    net = _net(t)
    net.scale = t.zeros(3)
    for handle in handles:
        handle.remove()
    _net(t)
    handle = of_all.register_module_parameter_registration_hook(
        lambda m, n, p: t.nn.Parameter(t.zeros_like(p))
    )
    layer = t.nn.Linear(2, 2)
    handle.remove()
    layer.extra = t.nn.Parameter(t.ones(1))
    return log, type(layer.weight).__name__, layer.extra.detach().numpy()


@_program
def _a_dict_from_a_hooked_module(t: Any) -> Any:
    class Named(t.nn.Module):
        def forward(self, x: Any) -> Any:
            return {"double": x * 2}

    layer = Named()
    layer.register_full_backward_hook(lambda m, gi, go: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer(t.ones(1, requires_grad=True))
    return ["module output should be a Tensor" in str(w.message) for w in caught]


@_program
def _shared_memory(t: Any) -> Any:
    net = _net(t)
    before = [x.clone() for x in net.state_dict().values()]
    same = net.share_memory() is net
    return same, [bool((x == y).all()) for x, y in zip(before, net.state_dict().values(), strict=True)], [
        p.is_shared() for p in net.parameters()
    ]  # fmt: skip


@_program
def _hooks_around_steps(t: Any) -> Any:
    seen = []
    weight = t.nn.Parameter(t.ones(2))
    optimizer = t.optim.SGD([weight], lr=0.5)

    def before(given: Any, args: Any, kwargs: Any) -> Any:
        seen.append([args[0] is optimizer, given is optimizer, len(args), sorted(kwargs)])
        return (optimizer, lambda: weight.sum() * 3), {}

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(lambda given, args, kwargs: seen.append([len(args), sorted(kwargs)]))
    return optimizer.step().item(), optimizer.step(closure=lambda: None).item(), seen


@_program
def _former_options_of_losses(t: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chosen = [t.nn.MSELoss(size_average=False).reduction, t.nn.L1Loss(reduce=False).reduction]
    return chosen, [str(w.message) for w in caught]


@pytest.mark.parametrize("name", PROGRAMS)
def test_like_pytorch(name: str) -> None:
    wanted, found = PROGRAMS[name](oracle), PROGRAMS[name](ddpgrad)
    np.testing.assert_equal(found, wanted)


def test_a_shallow_copy_has_members_of_its_own() -> None:
    net = _net(ddpgrad)
    copied = copy.copy(net)
    assert copied.first is net.first and copied.scale is net.scale
    copied.more = ddpgrad.nn.Tanh()
    copied.scale = None
    assert [n for n, _ in net.named_children()] == ["first", "rest"] and net.scale is not None


def test_several_devices_in_one_process_are_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"DistributedDataParallel.*ddprun -n 2"):
        ddpgrad.nn.DataParallel(ddpgrad.nn.Linear(1, 1), device_ids=[0, 1])


def test_the_choice_of_an_attention_kernel_is_accepted() -> None:
    from ddpgrad.nn.modules.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        pass
    with pytest.raises(TypeError, match="expected SDPBackend"), sdpa_kernel("math"):  # type: ignore[arg-type]
        pass
