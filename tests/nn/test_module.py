"""Module: registration, walking, hooks, conversion and copies."""

import copy
import gc
import pickle
from collections import OrderedDict
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.utils.hooks import RemovableHandle


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = nn.Parameter(torch.ones(4, 4))
        self.again = self.second
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)
        self.register_parameter("absent", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) * self.scale


def test_members_are_found_by_name_in_order_and_once() -> None:
    net = Net()
    assert [n for n, _ in net.named_parameters()] == [
        "first.weight",
        "first.bias",
        "second.weight",
        "second.bias",
    ]
    assert [n for n, _ in net.named_parameters(remove_duplicate=False)][4:] == ["again.weight", "again.bias"]
    assert [n for n, _ in net.named_modules(prefix="net")] == ["net", "net.first", "net.second"]
    assert [n for n, _ in net.named_buffers()] == ["scale", "scratch"]
    assert [n for n, _ in net.named_children()] == ["first", "second"]
    assert net.get_parameter("again.weight") is net.second.weight
    assert net.get_submodule("first") is net.first and net.get_submodule("") is net
    assert net.get_buffer("scale") is net.scale
    with pytest.raises(AttributeError, match=r"`third`.*first\.third"):
        net.get_submodule("first.third")


def test_assignment_decides_what_a_name_is() -> None:
    net = Net()
    net.first = nn.Identity()  # a module in place of a module keeps its place
    assert [n for n, _ in net.named_children()] == ["first", "second"]
    net.scale = nn.Parameter(torch.zeros(4))
    assert "scale" in dict(net.named_parameters()) and "scale" not in dict(net.named_buffers())
    net.extra = torch.ones(2)
    assert "extra" not in net.state_dict()
    net.extra = nn.Parameter(torch.ones(2))
    assert "extra" in net.state_dict()
    del net.extra
    assert not hasattr(net, "extra") and "extra" not in net.state_dict()
    net.absent = nn.Parameter(torch.ones(1))
    net.absent = None
    assert net.absent is None
    net._modules["second"] = nn.Flatten()  # as programs that operate on models do
    assert isinstance(net.second, nn.Flatten)
    last_first = [
        list(reversed(view())) for view in (net._modules.keys, net._modules.values, net._modules.items)
    ]
    assert last_first[2] == list(zip(*last_first[:2], strict=True)) and last_first[0] == [*net._modules][::-1]


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda n: setattr(n.first, "weight", torch.ones(4, 3)), TypeError, "parameter 'weight'.*Parameter or None"),
        (lambda n: setattr(n, "first", 3), TypeError, "cannot assign 'int' as child module 'first'"),
        (lambda n: setattr(n, "scale", "x"), TypeError, "buffer 'scale'.*Tensor or None"),
        (lambda n: n.register_buffer("forward", torch.ones(1)), KeyError, "attribute 'forward' already exists"),
        (lambda n: n.add_module("a.b", nn.Identity()), KeyError, r'contain "\."'),
        (lambda n: n.add_module("b", 3), TypeError, "int is not a Module subclass"),
        (lambda n: n.missing, AttributeError, "'Net' object has no attribute 'missing'"),
        (lambda n: n.to(torch.int64), TypeError, "only accepts floating point"),
        (lambda n: nn.Module()(1), NotImplementedError, "missing the required \"forward\""),
    ],
)  # fmt: skip
def test_errors(act: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        act(Net())


def test_members_need_an_initialised_module() -> None:
    class Early(nn.Module):
        def __init__(self, member: Any) -> None:
            self.member = member

    for member in (nn.Parameter(torch.ones(1)), nn.Identity()):
        with pytest.raises(AttributeError, match=r"before Module.__init__\(\) call"):
            Early(member)


def test_forward_hooks_run_in_order_and_may_replace() -> None:
    calls: list[str] = []
    layer = nn.Identity()
    layer.register_forward_pre_hook(lambda m, args: calls.append("pre") or (args[0] + 1,))
    layer.register_forward_pre_hook(lambda m, args: calls.append("first"), prepend=True)
    layer.register_forward_hook(lambda m, args, kwargs, out: out * 10, with_kwargs=True)
    handle = layer.register_forward_hook(lambda m, args, out: calls.append(f"post {int(out)}"))
    assert int(layer(torch.tensor(2))) == 30
    handle.remove()
    layer(torch.tensor(2))
    assert calls == ["first", "pre", "post 30", "first", "pre"]


def test_programs_find_and_replace_hooks_and_members_where_pytorch_keeps_them() -> None:
    layer = nn.Linear(2, 2, bias=False)
    before, after = (lambda m, args: None), (lambda m, args, out: out + 1)
    layer.register_forward_pre_hook(before)
    layer.register_forward_hook(after, always_call=True)
    assert list(layer._forward_pre_hooks.values()) == [before]
    assert list(layer._forward_hooks.values()) == [after]
    layer._forward_hooks = OrderedDict()
    assert torch.equal(layer(torch.eye(2)), layer.weight.T)


def test_a_class_with_a_getattr_of_its_own_is_asked_for_members_and_for_what_is_missing() -> None:
    read = []

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.inner, self.plain = nn.Parameter(torch.ones(2)), nn.Linear(2, 2), 3
            self.register_buffer("count", torch.zeros(1))

        def __getattr__(self, name: str) -> Any:
            read.append(name)
            if name == "other":
                return 4
            value = super().__getattr__(name)
            return value * 2 if name == "count" else value

        @property
        def twice(self) -> torch.Tensor:
            return self.weight * 2

    class Below(Watched):
        pass

    for kind in (Watched, Below):
        module = kind()
        read.clear()
        assert (module.plain, module.other, module.twice.tolist()) == (3, 4, [2.0, 2.0])
        assert module.inner is module.inner and (module.count + 1).tolist() == [1.0]
        assert read == ["other", "weight", "inner", "inner", "count"]
        with pytest.raises(AttributeError, match="'nothing'"):
            module.nothing  # noqa: B018
        assert len(list(module.parameters())) == 3 and "count" in module.state_dict()


def test_hooks_with_keywords_and_after_errors() -> None:
    class Scaled(nn.Module):
        def forward(self, x: float, by: float = 1.0) -> float:
            if by == 0:
                raise ValueError("by must not be 0")
            return x / by

    seen: list[Any] = []
    layer = Scaled()
    layer.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"by": kwargs["by"] * 2}), with_kwargs=True
    )
    layer.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    assert layer(8.0, by=2.0) == 2.0
    with pytest.raises(ValueError, match="must not be 0"):
        layer(8.0, by=0)
    assert seen == [2.0, None]
    layer.register_forward_pre_hook(lambda m, args, kwargs: args, with_kwargs=True)
    with pytest.raises(RuntimeError, match=r"\(new_args, new_kwargs\)"):
        layer(8.0, by=2.0)


def test_conversion_keeps_parameters_and_their_hooks() -> None:
    net = Net()
    before = list(net.parameters())
    arrived: list[Any] = []
    net.first.weight.register_post_accumulate_grad_hook(lambda p: arrived.append(p.grad.dtype))
    net(torch.ones(2, 3)).sum().backward()
    net.register_buffer("count", torch.zeros(1, dtype=torch.int64))
    assert net.double() is net
    assert all(p is q for p, q in zip(net.parameters(), before, strict=True))
    assert {p.dtype for p in net.parameters()} == {p.grad.dtype for p in net.parameters()} == {torch.float64}
    assert (net.scale.dtype, net.count.dtype) == (torch.float64, torch.int64)
    net(torch.ones(2, 3, dtype=torch.float64)).sum().backward()
    assert arrived == [torch.float32, torch.float64]
    assert net.to("cpu", torch.float16).scale.dtype is torch.float16


def test_modes_gradients_and_apply_reach_every_module() -> None:
    net = nn.Sequential(Net(), nn.Dropout(0.5))
    assert not net.eval()[1].training and net.train()[0].first.training
    net(torch.ones(1, 3)).sum().backward()
    grad = net[0].first.bias.grad
    net.zero_grad(set_to_none=False)
    assert net[0].first.bias.grad is grad and not grad.any()
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    order: list[str] = []
    net.apply(lambda m: order.append(type(m).__name__))
    assert order == ["Linear", "Linear", "Net", "Dropout", "Sequential"]


def test_a_deep_copy_shares_nothing() -> None:
    net = Net()
    net(torch.ones(1, 3)).sum().backward()
    other = copy.deepcopy(net)
    assert other.again is other.second and other.first.weight.grad is None
    with torch.no_grad():
        other.first.weight.fill_(7.0)
        other.scale.fill_(7.0)
    assert float(net.first.weight.max()) < 7 and float(net.scale.max()) == 1
    assert [n for n, _ in other.named_parameters()] == [n for n, _ in net.named_parameters()]


def test_parameter() -> None:
    data = torch.ones(2)
    p = nn.Parameter(data)
    assert isinstance(p, torch.Tensor) and p.requires_grad and p.is_leaf
    assert p.data_ptr() == data.data_ptr()
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    assert type(p * 2) is torch.Tensor
    with pytest.raises(TypeError, match="must be a Tensor, got list"):
        nn.Parameter([1.0])  # type: ignore[arg-type]


def test_backward_hooks_leave_gradients_as_they_are() -> None:
    x = torch.randn(4, 3)
    plain = Net()
    watched = copy.deepcopy(plain)
    shapes: list[Any] = []
    watched.second.register_full_backward_hook(lambda m, gi, go: shapes.append((gi[0].shape, go[0].shape)))
    for net in (plain, watched):
        net(x).square().sum().backward()
    assert shapes == [((4, 4), (4, 4))]
    for p, q in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)


def test_dropout_follows_the_mode_and_the_seed() -> None:
    drop = nn.Dropout(0.25)
    x = torch.ones(1000)
    torch.manual_seed(1)
    a, b = drop(x), drop(x)
    torch.manual_seed(1)
    assert torch.equal(a, drop(x)) and not torch.equal(a, b)
    assert float(a.max()) == pytest.approx(1 / 0.75) and 200 < int((a == 0).sum()) < 300
    assert drop.eval()(x) is x
    with pytest.raises(ValueError, match=r"between 0 and 1, but got 1\.5"):
        nn.Dropout(1.5)


def test_a_handle_knows_where_its_hook_stands_and_does_not_keep_it_alive() -> None:
    layer = nn.Linear(1, 1)
    handle = layer.register_forward_hook(lambda *_: None, with_kwargs=True, always_call=True)
    assert handle.hooks_dict_ref() is layer._forward_hooks and handle.id in layer._forward_hooks
    assert layer._forward_hooks_with_kwargs == layer._forward_hooks_always_called == {handle.id: True}
    of_all = nn.modules.module.register_module_forward_hook(lambda *_: None, always_call=True)
    assert nn.modules.module._global_forward_hooks_always_called == {of_all.id: True}
    of_all.remove()
    assert not nn.modules.module._global_forward_hooks
    handle.remove()
    assert not layer._forward_hooks and not layer._forward_hooks_with_kwargs
    other = layer.register_forward_pre_hook(lambda *_: None)
    del layer
    gc.collect()
    assert other.hooks_dict_ref() is None
    other.remove()
    own: dict[int, Any] = {}
    mine = RemovableHandle(own, extra_dict=own)
    own[mine.id] = "a hook"
    with mine:
        assert mine.hooks_dict_ref() is own
    assert not own
    hooks: OrderedDict[int, str] = OrderedDict()
    kept = RemovableHandle(hooks)
    hooks[kept.id] = "a hook"
    copied, again = pickle.loads(pickle.dumps((hooks, kept)))
    assert again.hooks_dict_ref() is copied
    again.remove()
    assert not copied and hooks


def test_a_module_says_what_a_deep_copy_of_it_restores():
    class Restored(nn.Linear):
        def __setstate__(self, state):
            super().__setstate__(state)
            self.restored = True

    first = Restored(2, 1)
    other = copy.deepcopy(first)
    assert other.restored and torch.equal(other.weight, first.weight) and not hasattr(first, "restored")


def test_the_attributes_of_a_parameter_are_those_that_the_program_set():
    """Libraries give them to the constructor of another parameter, which must not get this one's place in the graph."""
    parameter = nn.Parameter(torch.ones(2))
    parameter.mine = 3
    (parameter * 2).sum().backward()
    other = nn.Parameter(torch.zeros(2))
    other.__dict__.update(parameter.__dict__)
    (other * 5).sum().backward()
    assert vars(parameter) == {"mine": 3} and parameter.__dict__.copy() == vars(other) and other.mine == 3
    assert parameter.grad.tolist() == [2.0, 2.0] and other.grad.tolist() == [5.0, 5.0]
    del parameter.__dict__["mine"]
    assert not vars(parameter) and type(parameter)(parameter.to("cpu"), **vars(parameter)).shape == (2,)


class _Unused(nn.Module):
    def forward(self, x, other):
        return x * 2, other * 3


def test_a_backward_hook_sees_zeros_where_no_gradient_came() -> None:
    module, seen = _Unused(), []
    module.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    x, other = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    module(x, other)[0].sum().backward()
    ((gi, go),) = seen
    assert [g.tolist() for g in (*gi, *go)] == [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    module(x, torch.ones(2))[0].sum().backward()  # also for a tensor that requires none, beside one that does
    assert [g.tolist() for g in seen[1][0]] == [[2.0, 2.0], [0.0, 0.0]]
    module.register_full_backward_hook(lambda m, gi, go: gi[0])
    with pytest.raises(RuntimeError, match="not a tuple"):
        module(x, other)[0].sum().backward()


def test_a_backward_hook_cannot_change_gradients_that_nobody_asked_for() -> None:
    layer = nn.Linear(2, 1)
    with (
        layer.register_full_backward_hook(lambda m, gi, go: gi),
        pytest.warns(UserWarning, match="no inputs require"),
    ):
        layer(torch.ones(1, 2)).sum().backward()
    layer.register_full_backward_hook(lambda m, gi, go: (torch.ones(1, 2),))
    with pytest.raises(RuntimeError, match="always return None"), pytest.warns(UserWarning):
        layer(torch.ones(1, 2)).sum().backward()


def test_neither_hooks_nor_loading_make_cycles() -> None:
    x = torch.ones(1, 2, requires_grad=True)

    def use(layer: nn.Module) -> None:
        layer.register_full_backward_pre_hook(lambda m, go: None)
        layer.register_full_backward_hook(lambda m, gi, go: None)
        layer(x).sum().backward()
        layer.load_state_dict(nn.Linear(2, 1).state_dict())

    use(nn.Linear(2, 1))
    gc.collect()
    gc.disable()
    try:
        use(nn.Linear(2, 1))
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_hook_of_one_node_says_that_it_does_not_see_all() -> None:
    net, seen = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), []
    net.register_backward_hook(lambda m, gi, go: seen.append(len(gi)))
    with pytest.warns(FutureWarning, match="multiple autograd Nodes"):
        net(torch.ones(1, 2)).sum().backward()
    assert seen == [1]
