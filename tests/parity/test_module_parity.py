"""Rules and hooks of `nn.Module` against PyTorch: the same program runs in both, and logs what it sees."""

import copy
import importlib
import pickle
import warnings
from collections import OrderedDict
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


def _refused(act: Callable[[], Any]) -> str:
    """The type of the error that `act` raises."""
    try:
        act()
    except Exception as error:
        return type(error).__name__
    return "no error"


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
def _both_kinds_of_backward_hooks(t: Any) -> Any:
    one, other = t.nn.Linear(1, 1), t.nn.Linear(1, 1)
    one.register_full_backward_hook(lambda m, gi, go: None)
    other.register_backward_hook(lambda m, gi, go: None)
    return [
        _refused(lambda: one.register_backward_hook(lambda m, gi, go: None)),
        _refused(lambda: other.register_full_backward_hook(lambda m, gi, go: None)),
    ]


@_program
def _writing_to_what_a_hooked_module_was_given(t: Any) -> Any:
    layer = t.nn.ReLU(inplace=True)
    layer.register_full_backward_hook(lambda m, gi, go: None)
    x = t.ones(2, requires_grad=True) * 2
    same = t.nn.Identity()
    same.register_full_backward_hook(lambda m, gi, go: None)
    return _refused(lambda: layer(x)), _refused(lambda: same(x).add_(1))


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
def _results_of_state_hooks(t: Any) -> Any:
    saving, loading = _net(t), _net(t)
    saving.register_state_dict_post_hook(lambda m, d, p, v: {})
    loading.register_load_state_dict_post_hook(lambda m, keys: keys)
    return [
        _refused(saving.state_dict),
        _refused(lambda: loading.load_state_dict(loading.state_dict())),
        _refused(lambda: loading.load_state_dict([])),
    ]


@_program
def _members_as_dicts(t: Any) -> Any:
    net = _net(t)
    copied = net._modules.copy()
    net._modules["last"] = t.nn.ReLU()
    return [
        type(copied).__name__, list(copied), list(reversed(net._modules)), net._modules.popitem()[0], repr(net),
        len(list(net.modules(remove_duplicate=False))),
    ]  # fmt: skip


@_program
def _texts_of_containers(t: Any) -> Any:
    values = t.nn.ParameterList([t.ones(2), 3, t.ones(2, 3)])
    popped = t.nn.Sequential(t.nn.ReLU(), t.nn.Tanh())
    return repr(values), repr(popped.pop(key=0)), repr(popped), repr(t.nn.TripletMarginWithDistanceLoss())


@_program
def _files_that_programs_import_from(t: Any) -> Any:
    places = {
        "cuda.amp.grad_scaler": "GradScaler", "cuda.amp.autocast_mode": "autocast custom_fwd custom_bwd",
        "optim.adamw": "AdamW", "optim.sgd": "SGD", "nn.modules.channelshuffle": "ChannelShuffle",
        "nn.parallel.distributed": "DistributedDataParallel", "nn.parameter": "Parameter", "optim.optimizer": "Optimizer",
        "utils.data.distributed": "DistributedSampler", "utils.data.dataloader": "DataLoader default_collate",
        "utils.data._utils.pin_memory": "pin_memory", "utils.data.sampler": "Sampler", "utils.data.dataset": "Dataset",
    }  # fmt: skip
    found = {}
    for place, names in places.items():
        file = importlib.import_module(f"{t.__name__}.{place}")
        found[place] = [callable(getattr(file, name)) for name in names.split()]
    return found


@_program
def _order_and_text_of_parameter_dicts(t: Any) -> Any:
    sorted_ = t.nn.ParameterDict({"b": t.ones(1), "a": t.ones(2), "c": 3})
    given = t.nn.ParameterDict([("b", t.ones(1)), ("a", t.ones(2))])
    given.update(OrderedDict(z=t.ones(1), y=t.ones(2)))
    return (
        list(sorted_),
        [p.numel() for p in sorted_.parameters()],
        list(given),
        repr(sorted_),
        repr(sorted_ | given),
    )


@_program
def _sizes_before_the_first_input(t: Any) -> Any:
    lazy = t.nn.LazyLinear(3)
    return _refused(lambda: lazy.weight.numel()), _refused(lambda: lazy.weight.shape)


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
def _types_of_errors(t: Any) -> Any:
    return [
        _refused(lambda: t.nn.Embedding(3, 4, padding_idx=5)),
        _refused(lambda: t.nn.Hardtanh(3, 2)),
        _refused(lambda: t.nn.utils.parametrizations.orthogonal(t.nn.Linear(2, 2), "absent")),
    ]


@_program
def _former_options_of_losses(t: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chosen = [t.nn.MSELoss(size_average=False).reduction, t.nn.L1Loss(reduce=False).reduction]
    return chosen, [str(w.message) for w in caught]


@_program
def _layers_where_pytorch_has_them(t: Any) -> Any:
    modules = t.nn.modules
    places = [modules.loss.TripletMarginLoss, modules.activation.MultiheadAttention, modules.rnn.LSTMCell]
    places += [modules.conv.LazyConv2d, modules.linear.LazyLinear, modules.Conv2d]
    state = t.nn.DataParallel(t.nn.Sequential(t.nn.Linear(1, 1))).state_dict()
    modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    return (
        [kind.__name__ for kind in places],
        list(state),
        list(state._metadata),
        repr(pickle.loads(pickle.dumps(t.nn.LazyLinear(3)))),
    )


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
