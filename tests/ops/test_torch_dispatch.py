"""`__torch_dispatch__` and `TorchDispatchMode`: what classes and modes are told of ops, and what becomes of their answers."""

import copy
import pickle
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad.compat._C import DisableTorchFunctionSubclass, _disabled_torch_function_impl
from ddpgrad.core.errors import NoElementsError
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.nn import functional as F
from ddpgrad.utils._mode_utils import no_dispatch
from ddpgrad.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    is_traceable_wrapper_subclass,
    return_and_correct_aliasing,
    transform_subclass,
)
from ddpgrad.utils._pytree import tree_map

aten = torch.ops.aten


class Log(TorchDispatchMode):
    """Writes down what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func).removeprefix("aten."))
        return func(*args, **(kwargs or {}))


class Wrapped(torch.Tensor):
    """Has a tensor instead of memory."""

    elem: Any
    seen: list[str] = []  # noqa: RUF012
    __torch_function__ = staticmethod(_disabled_torch_function_impl)

    @staticmethod
    def __new__(cls: Any, elem: Any, requires_grad: bool = False) -> Any:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            dtype=elem.dtype,
            device=elem.device,
            requires_grad=requires_grad,
        )
        made.elem = elem.detach()
        return made

    def __tensor_flatten__(self) -> Any:
        return ["elem"], None

    @classmethod
    def __tensor_unflatten__(cls, parts: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(parts["elem"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(str(func).removeprefix("aten."))
        inner = tree_map(lambda t: t.elem if isinstance(t, cls) else t, (args, kwargs or {}))
        out = func(*inner[0], **inner[1])
        out = tree_map(lambda t: cls(t) if isinstance(t, torch.Tensor) else t, out)
        return return_and_correct_aliasing(func, args, kwargs or {}, out)


def told(call: Any) -> list[str]:
    with Log() as log:
        call()
    return log.seen


@pytest.fixture
def tensors() -> tuple[torch.Tensor, ...]:
    return torch.rand(2, 3), torch.rand(4, 3), torch.rand(4)


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("x + 1", "add.Tensor"),
        ("1 - x", "rsub.Scalar"),
        ("x > 0", "gt.Scalar"),
        ("x ** 2", "pow.Tensor_Scalar"),
        ("x.sum(1)", "sum.dim_IntList"),
        ("x.std(1)", "std.correction"),
        ("x.max(1)", "max.dim"),
        ("x.softmax(1)", "_softmax.default"),
        ("x.double()", "_to_copy.default"),
        ("x.t().reshape(6)", "t.default clone.default _unsafe_view.default"),
        ("x[0, 1]", "select.int select.int"),
        ("x[..., 1:]", "slice.Tensor"),
        ("x[x > 0]", "gt.Scalar index.Tensor"),
        ("x[torch.tensor([0]), 1:]", "lift_fresh.default slice.Tensor index.Tensor"),
        ("x @ w.t()", "t.default mm.default"),
        ("F.linear(x, w, b)", "t.default addmm.default"),
        ("F.linear(x[None], w, b)", "unsqueeze.default view.default t.default addmm.default view.default"),
        ("F.layer_norm(x, (3,))", "native_layer_norm.default"),
        (
            "F.cross_entropy(x, torch.tensor([0, 1]))",
            "lift_fresh.default _log_softmax.default nll_loss_forward.default",
        ),
        ("F.dropout(x)", "empty_like.default bernoulli_.float div_.Scalar mul.Tensor"),
        ("torch.zeros(2)", "zeros.default"),
        ("x.add_(1)", "add_.Tensor"),
        ("x.normal_()", "normal_.default"),
        ("x.detach()", "detach.default"),
        ("x.sum().item()", "sum.default _local_scalar_dense.default"),
        ("list(x)", "unbind.int"),
        ("x.contiguous().to(x.dtype)", ""),
    ],
)
def test_a_mode_is_told_by_pytorchs_names(tensors, expression, names):
    x, w, b = tensors
    scope = {"x": x, "w": w, "b": b, "torch": torch, "F": F}
    assert told(lambda: eval(expression, scope)) == names.split()


def test_an_op_is_one_object():
    add = aten.add.Tensor
    assert add is torch.ops.aten.add.Tensor and add.overloadpacket is aten.add and copy.deepcopy(add) is add
    assert (str(add), repr(add)) == ("aten.add.Tensor", "<OpOverload(op='aten.add', overload='Tensor')>")
    assert (add.name(), add.namespace, add.__name__) == ("aten::add.Tensor", "aten", "add.Tensor")
    assert add._schema.name == "aten::add" and add._schema.arguments[0].name == "self"
    assert aten.add_.Tensor._schema.is_mutable and not add._schema.is_mutable
    assert aten.view.default.is_view and aten.relu.default.name() == "aten::relu"
    assert torch.Tag.inplace_view in aten.t_.default.tags and torch.Tag.pointwise in add.tags
    assert aten.addmm.default(torch.ones(2), torch.ones(2, 3), torch.ones(3, 2)).tolist() == [[4.0, 4.0]] * 2


def test_history_is_that_of_the_op_where_the_mode_computes_it():
    x = torch.rand(3, requires_grad=True)
    with Log() as log:
        y = x.exp()
        assert log.seen == ["exp.default"]
        y.sum().backward()
    assert type(y.grad_fn).__name__ == "ExpBackward0" and torch.equal(x.grad, y.detach())
    assert "mul.Tensor" in log.seen


def test_handlers_are_below_autograd():
    x = torch.rand(3, requires_grad=True)

    class Twice(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            assert not out.requires_grad
            return out * 2 if func is aten.sin.default else out

    with Twice():
        y = x.sin()
    y.sum().backward()
    assert torch.equal(y.detach(), 2 * x.detach().sin()) and torch.equal(x.grad, x.detach().cos())


def test_modes_nest_and_pass_on():
    class Named(TorchDispatchMode):
        def __init__(self, name: str, seen: list[str]) -> None:
            super().__init__()
            self.name, self.seen = name, seen

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(self.name)
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    with Named("outer", seen), Named("inner", seen):
        torch.ones(2)
        assert seen == ["inner", "outer"]
        with _disable_current_modes():
            torch.ones(2)
        with no_dispatch():
            torch.ones(2)
    torch.ones(2) + 1
    assert seen == ["inner", "outer"]


def test_a_mode_may_answer_alone():
    class Nothing(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return torch.zeros(7)

    class Refuses(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    with Nothing():
        assert (torch.ones(2) + 1).shape == (7,)
    with pytest.raises(TypeError, match=r"aten\.ones\.default.*NotImplemented"), Refuses():
        torch.ones(2)


def test_gradients_through_a_class_without_memory():
    x, w = torch.rand(2, 3), torch.rand(4, 3)
    a, b = Wrapped(x, True), Wrapped(w, True)
    p, q = x.clone().requires_grad_(), w.clone().requires_grad_()
    Wrapped.seen.clear()
    out = F.linear(a, b).relu().mean()
    assert isinstance(out, Wrapped)
    assert Wrapped.seen == ["t.default", "mm.default", "relu.default", "mean.default"]
    out.backward()
    F.linear(p, q).relu().mean().backward()
    assert isinstance(a.grad, Wrapped) and Wrapped.seen.count("mm.default") == 3
    assert torch.allclose(a.grad.elem, p.grad) and torch.allclose(b.grad.elem, q.grad)
    (again,) = torch.autograd.grad((a * a).sum(), a, create_graph=True)
    (second,) = torch.autograd.grad(again.sum(), a)
    assert torch.equal(second.elem, torch.full((2, 3), 2.0))


def test_what_nodes_keep_is_not_asked_beside_gathered_parameters():
    torch.distributed.init_process_group()
    gathered = fully_shard(torch.nn.Linear(2, 2))(torch.ones(1, 2))  # whose place in memory nodes may keep
    Wrapped.seen.clear()
    F.linear(Wrapped(torch.rand(2, 3), True), Wrapped(torch.rand(4, 3), True))
    torch.distributed.destroy_process_group()
    assert Wrapped.seen == ["t.default", "mm.default"] and gathered.requires_grad


def test_a_class_with_memory_is_told_and_keeps_its_kind():
    class Tagged(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with no_dispatch():
                return torch.Tensor._make_subclass(cls, func(*args, **(kwargs or {})))

    x = torch.Tensor._make_subclass(Tagged, torch.rand(3), True)
    y = x.sin() * 2
    assert type(y) is Tagged and y.requires_grad
    y.sum().backward()
    with no_dispatch():
        assert type(x.grad) is Tagged and torch.allclose(x.grad, 2 * x.detach().cos())


def test_indices_and_arguments_of_a_class_are_told():
    i = Wrapped(torch.tensor([2, 0]))
    x = torch.arange(6.0).view(3, 2)
    assert x[i].elem.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert x.index_select(0, i).elem.tolist() == x[i].elem.tolist() == F.embedding(i, x).elem.tolist()
    assert torch.cat([x, Wrapped(x)]).elem.shape == (6, 2)
    assert [t.elem.tolist() for t in Wrapped(x).sort(0, descending=True)][1] == [[2, 2], [1, 1], [0, 0]]


def test_what_a_class_without_memory_is_like():
    x = Wrapped(torch.rand(4, 3).t())
    assert (x.shape, x.stride(), x.device.type, x.dtype) == ((3, 4), (1, 3), "cpu", torch.float32)
    assert not x.is_contiguous() and not x.is_meta and not x.requires_grad
    p = torch.nn.Parameter(x)
    assert isinstance(p, torch.nn.Parameter) and isinstance(p, Wrapped) and p.requires_grad
    assert is_traceable_wrapper_subclass(x) and not is_traceable_wrapper_subclass(x.elem)
    assert transform_subclass(x, lambda name, t: t + 1).elem[0, 0] == x.elem[0, 0] + 1
    with torch.no_grad():
        assert x.add_(1) is x


def test_gradients_of_what_changes_in_place():
    x = torch.rand(3)
    a, p = Wrapped(x, True), x.clone().requires_grad_()
    for t in (a, p):
        y = t * 3
        assert y.mul_(2) is y and y.add_(t).sigmoid_().requires_grad
        y.sum().backward()
    assert torch.allclose(a.grad.elem, p.grad)
    with pytest.raises(RuntimeError, match="leaf"):
        a.mul_(2)


def test_what_a_class_cannot_answer_is_an_error():
    class Wrong(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return "no tensor"

    assert Wrong.__torch_function__ is _disabled_torch_function_impl
    with pytest.raises(RuntimeError, match="Unable to cast 'no tensor'"):
        torch.ones(2).as_subclass(Wrong).neg()
    x = Wrapped(torch.ones(2))
    for read in (x.tolist, x.numpy):
        with pytest.raises(RuntimeError, match="not supported for tensor subclasses"):
            read()
    with pytest.raises(NoElementsError, match="__torch_dispatch__"):
        x._array += 1

    class Plain(torch.Tensor):
        pass

    with pytest.raises(TypeError, match="Plain must define __torch_dispatch__"):
        torch.Tensor._make_wrapper_subclass(Plain, (2,))

    class OfClass(TorchDispatchMode):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return None

    with pytest.raises(RuntimeError, match="classmethod"), OfClass():
        pass


def test_copies_files_and_texts_of_a_class_without_memory(tmp_path):
    x = Wrapped(torch.arange(3.0))
    x.note = [1]
    copied = copy.deepcopy(x)
    assert copied.elem.tolist() == [0.0, 1.0, 2.0] and copied.note == [1] and copied.note is not x.note
    again = pickle.loads(pickle.dumps(x))
    assert type(again) is Wrapped and again.elem.tolist() == [0.0, 1.0, 2.0] and again.stride() == (1,)
    shallow = copy.copy(x)
    assert shallow.note is x.note and shallow.device.type == "cpu"
    torch.save({"x": x, "p": torch.nn.Parameter(x)}, tmp_path / "x.pt")
    with torch.serialization.safe_globals([Wrapped]):
        read = torch.load(tmp_path / "x.pt")
    assert [type(t) for t in read.values()] == [Wrapped, Wrapped] and isinstance(
        read["p"], torch.nn.Parameter
    )
    assert read["x"].elem.tolist() == [0.0, 1.0, 2.0] and read["x"].note == [1] and not read["x"].is_meta
    assert torch.Tensor.__repr__(x, tensor_contents="...") == "Wrapped(...)"


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_training_of_a_class_without_memory(optimizer):
    trained = []
    for make in (Wrapped, torch.clone):
        p = torch.nn.Parameter(make(torch.arange(1.0, 5.0)))
        steps = optimizer([p], lr=0.1)
        for _ in range(2):
            steps.zero_grad(set_to_none=False)
            (p * p).sum().backward()
            norm = torch.nn.utils.clip_grad_norm_([p], 1.0)
            steps.step()
        trained.append([getattr(t, "elem", t.detach()) for t in (p, norm)])
    for one, other in zip(*trained, strict=True):
        assert torch.allclose(one, other)


def test_functions_that_hand_back_without_asking_are_told():
    class Both(Wrapped):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    known = torch.Tensor.detach, torch.Tensor.item, torch.Tensor.data
    x = Both(torch.tensor([2.0]))
    with Log():  # libraries keep methods in tables
        assert (torch.Tensor.detach, torch.Tensor.item, torch.Tensor.data) == known
    assert type(x.detach()) is Both and x.item() == 2 and float(x) == 2 and type(x.data) is Both
    assert isinstance(torch.nn.Parameter(x), Both)


def test_custom_ops_are_told():
    op = torch.library.custom_op("tests::told", mutates_args=())(_doubled)
    op.register_autograd(lambda ctx, g: g * 2)
    seen: list[str] = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Names():
        op(torch.zeros(2).requires_grad_())
    x = Wrapped(torch.ones(2), True)
    op(x).sum().backward()
    assert seen == ["aten.zeros.default", "tests.told.default"] and x.grad.elem.tolist() == [2.0, 2.0]


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_running_statistics_are_updated_once():
    norms = []
    for make in (Wrapped, torch.clone):
        norm = torch.nn.BatchNorm1d(2)
        norm(make(torch.arange(6.0).view(3, 2))).sum().backward()
        norms.append(norm)
    for one, other in zip(norms[0].state_dict().values(), norms[1].state_dict().values(), strict=True):
        assert torch.allclose(one, other)


def test_gradients_of_what_is_written_at_places():
    grads = []
    for make in (lambda t: Wrapped(t, True), lambda t: t.clone().requires_grad_()):
        x, v = make(torch.arange(3.0)), make(torch.ones(2))
        y = x * 2
        y[torch.tensor([0, 2])] = v * 3
        y.index_add_(0, torch.tensor([1, 1]), v)
        (y * y).sum().backward()
        grads.append([getattr(t.grad, "elem", t.grad).tolist() for t in (x, v)])
    assert grads[0] == grads[1] == [[0.0, 16.0, 0.0], [26.0, 26.0]]
