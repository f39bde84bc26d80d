"""`torch.fx`: graphs of calls are traced, read, changed, copied and run."""

import copy
import io
import math
import operator
import weakref

import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import fx, nn
from ddpgrad.fx.passes.shape_prop import ShapeProp
from ddpgrad.fx.proxy import TraceError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.scale = nn.Parameter(torch.full((8,), 2.0))
        self.register_buffer("shift", torch.arange(8.0))
        self.plain = torch.ones(8)

    def forward(self, x, power=2.0, *, shift=1):
        y = F.gelu(self.layers(x)) * (self.scale * 3) + self.shift - self.plain
        first, second = y.chunk(2, dim=-1)
        z = torch.cat([first, second], dim=1).view(x.shape[0], -1) ** power / (shift - x.sum())
        return {"z": z[1:, ::2], "root": math.sqrt(z.size(0))}


@fx.wrap
def opaque(x):
    return x * 2 if x.sum() > 0 else x


def calls_opaque(x):
    return opaque(x) + 1


def test_a_traced_module_computes_the_same_and_trains_the_same_parameters():
    torch.manual_seed(0)
    net, x = Net(), torch.randn(3, 4)
    traced = fx.symbolic_trace(net)
    traced.graph.lint()
    assert type(traced).__name__ == "Net" and isinstance(traced, fx.GraphModule)
    wanted, found = net(x), traced(x)
    assert torch.equal(found["z"], wanted["z"]) and found["root"] == wanted["root"]
    found["z"].sum().backward()
    assert net.scale.grad is not None and net.layers[0].weight.grad is not None
    assert nn.Module.__call__.__qualname__ == "Module.__call__" and F.gelu(x).shape == x.shape
    assert "__getattribute__" not in vars(nn.Module)


def test_a_graph_says_what_is_called_and_as_what_source():
    def function(x, flag=None):
        a, b = x.split(2)
        return torch.add(a, b, alpha=2)[0].relu()

    traced = fx.symbolic_trace(function)
    assert type(traced).__qualname__.endswith("GraphModuleImpl")  # by which accelerate knows it
    assert str(traced.graph).splitlines() == [
        "graph():",
        "    %x : [num_users=1] = placeholder[target=x]",
        "    %flag : [num_users=0] = placeholder[target=flag](default=None)",
        "    %split : [num_users=2] = call_method[target=split](args = (%x, 2), kwargs = {})",
        "    %getitem : [num_users=1] = call_function[target=operator.getitem](args = (%split, 0), kwargs = {})",
        "    %getitem_1 : [num_users=1] = call_function[target=operator.getitem](args = (%split, 1), kwargs = {})",
        "    %add : [num_users=1] = call_function[target=torch.add](args = (%getitem, %getitem_1), kwargs = {alpha: 2})",
        "    %getitem_2 : [num_users=1] = call_function[target=operator.getitem](args = (%add, 0), kwargs = {})",
        "    %relu : [num_users=1] = call_method[target=relu](args = (%getitem_2,), kwargs = {})",
        "    return relu",
    ]
    assert traced.code.strip().splitlines() == [
        "def forward(self, x, flag = None):",
        "    split = x.split(2);  x = None",
        "    getitem = split[0]",
        "    getitem_1 = split[1];  split = None",
        "    add = torch.add(getitem, getitem_1, alpha = 2);  getitem = getitem_1 = None",
        "    getitem_2 = add[0];  add = None",
        "    relu = getitem_2.relu();  getitem_2 = None",
        "    return relu",
    ]


def test_what_functions_say_of_their_types_stays():
    def function(x: torch.Tensor, y: int = 3) -> torch.Tensor:
        return x + y

    traced = fx.symbolic_trace(function)
    assert [node.type for node in traced.graph.nodes] == [torch.Tensor, int, None, torch.Tensor]
    assert (
        str(traced.graph).splitlines()[1].strip() == "%x : torch.Tensor [num_users=1] = placeholder[target=x]"
    )
    assert "def forward(self, x : torch.Tensor, y : int = 3) -> torch.Tensor:" in traced.code
    assert "input : torch.Tensor) -> torch.Tensor:" in fx.symbolic_trace(nn.Linear(1, 1)).code


def test_calls_are_written_down_as_they_were_made():
    code = fx.symbolic_trace(lambda x, w: torch.addmm(w, torch.cat([x, w], dim=1), x).softmax(dim=0)).code
    for call in ("torch.cat([x, w], dim = 1)", "torch.addmm(w, cat, x)", ".softmax(dim = 0)"):
        assert call in code
    code = fx.symbolic_trace(lambda x: torch.addmm(torch.ones(1), torch.ones(1, 1), x)).code
    assert "torch.addmm" in code and "matmul" not in code


def test_a_graph_is_changed_and_compiled_anew():
    traced = fx.symbolic_trace(lambda x: F.relu(x) + 1)
    relu, add = traced.graph.find_nodes(op="call_function")
    assert relu.target is F.relu and add.target is operator.add and list(relu.users) == [add]
    with pytest.raises(RuntimeError, match="still had 1 users"):
        traced.graph.erase_node(relu)
    with traced.graph.inserting_after(relu):
        tanh = traced.graph.call_function(torch.tanh, (relu.args[0],))
    assert relu.replace_all_uses_with(tanh) == [add] and not relu.users and tanh.next is add
    with traced.graph.inserting_before(traced.graph.output_node()):
        traced.graph.call_method("neg", (tanh,))
    assert traced.graph.eliminate_dead_code()
    traced.recompile()
    assert [n.name for n in traced.graph.nodes] == ["x", "tanh", "add", "output"]
    nodes = list(traced.graph.nodes)
    assert min(nodes[::-1]) is nodes[0] and max(nodes) is nodes[-1] and tanh <= tanh and not tanh < tanh
    x = torch.tensor([-1.0, 2.0])
    assert torch.equal(traced(x), x.tanh() + 1)
    add.args = (add.args[0], 5)
    traced.recompile()
    assert torch.equal(traced(x), x.tanh() + 5)
    with pytest.raises(TypeError, match=r"mutation.*new_args"):
        fx.symbolic_trace(lambda x: torch.cat([x, x])).graph.find_nodes(op="call_function")[0].args[0].append(
            1
        )
    tanh.prepend(add)
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        traced.graph.lint()


def test_a_graph_is_built_by_hand():
    graph = fx.Graph()
    x = graph.placeholder("x")
    hidden = graph.call_module("layers.0", (x,))
    shifted = graph.call_function(operator.iadd, (hidden, graph.get_attr("shift")))
    graph.output((shifted, {"first": graph.call_function(operator.getitem, (shifted, (0, slice(None, 1))))}))
    linear, shift = nn.Linear(2, 3), torch.ones(3)
    made = fx.GraphModule({"layers.0": linear, "shift": shift}, graph)
    out, rest = made(torch.ones(2, 2))
    assert torch.equal(out, linear(torch.ones(2, 2)) + 1) and torch.equal(rest["first"], out[0, :1])
    assert dict(made.named_buffers())["shift"] is shift and 'getattr(self.layers, "0")' in made.code
    with pytest.raises(RuntimeError, match=r"layers\.0"):
        fx.GraphModule({"shift": shift}, graph)
    with pytest.raises(ValueError, match="Callable is expected"):
        graph.call_function("relu", (x,))
    with pytest.raises(RuntimeError, match="another graph"):
        fx.Graph().call_method("relu", (x,))
    assert made.delete_submodule("layers.0") and not made.delete_submodule("layers.0")
    with pytest.raises(AttributeError, match="scale"):
        graph = fx.Graph()
        graph.output(graph.get_attr("scale"))
        fx.GraphModule(nn.Module(), graph)


def test_what_is_not_known_while_tracing_is_an_error_with_the_line():
    def branches(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(TraceError, match=rf"{__file__}:{branches.__code__.co_firstlineno + 1}"):
        fx.symbolic_trace(branches)
    with pytest.raises(TraceError, match="cannot be iterated"):
        fx.symbolic_trace(lambda x: list(x))
    with pytest.raises(RuntimeError, match="'len' is not supported"):
        fx.symbolic_trace(lambda x: len(x))
    with pytest.raises(NotImplementedError, match="argument of type"):
        fx.symbolic_trace(lambda x: torch.add(x, object()))
    with pytest.raises(RuntimeError, match="Keys for dictionaries"):
        fx.symbolic_trace(lambda x: {x: 1})
    with pytest.raises(NotImplementedError, match="top level"):
        fx.wrap(branches)
    assert opaque(torch.ones(1)).item() == 2.0  # nothing stays replaced


def test_tensors_are_made_in_traced_sizes():
    def places(x):
        row = torch.arange(0, x.shape[1], 2).sum() + torch.zeros(x.size(), dtype=x.dtype)
        return row + torch.full((x.size(0), 1), 2.0, device=x.device) + torch.ones(x.shape)

    traced = fx.symbolic_trace(places)
    x = torch.ones(2, 5, dtype=torch.float64)
    assert torch.equal(traced(x), places(x)) and traced(x).dtype is torch.float64
    made = [
        node.target
        for node in traced.graph.nodes
        if node.target in (torch.arange, torch.zeros, torch.full, torch.ones)
    ]
    assert made == [torch.arange, torch.zeros, torch.full, torch.ones]


def test_leaves_wrapped_functions_and_given_arguments():
    traced = fx.symbolic_trace(calls_opaque)
    assert traced(torch.ones(1)).item() == 3.0 and traced(-torch.ones(1)).item() == 0.0
    assert traced.graph.find_nodes(op="call_function")[0].target is opaque

    class Inside(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return False

    net = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    assert not Inside().trace(net).find_nodes(op="call_module")
    assert [n.target for n in fx.Tracer().trace(net).find_nodes(op="call_module")] == ["0", "1"]

    def function(x, flag):
        return x + 1 if flag else x - 1

    given = fx.symbolic_trace(function, concrete_args={"flag": True})
    assert given(torch.ones(1), True).item() == 2.0
    with pytest.raises(AssertionError, match="specialized to have value True"):
        given(torch.ones(1), False)


def test_given_arguments_may_be_containers():
    def function(batch, pair, scale):
        return batch["x"] * scale + (pair[0] if batch["add"] else -pair[1][0])

    given = {"batch": {"x": fx.PH, "add": True}, "pair": (fx.PH, [fx.PH])}
    traced = fx.symbolic_trace(function, concrete_args=given)
    x, y = torch.ones(2), torch.full((2,), 3.0)
    assert traced({"x": x, "add": True}, (y, [x]), 2).tolist() == [5.0, 5.0]
    with pytest.raises(AssertionError, match=r"batch\['add'\] has been specialized to have value True"):
        traced({"x": x, "add": False}, (y, [x]), 2)


def test_copies_and_files_hold_graphs_of_their_own():
    torch.manual_seed(0)
    traced, x = fx.symbolic_trace(Net()), torch.randn(3, 4)
    file = io.BytesIO()
    torch.save(traced, file)
    file.seek(0)
    for other in (copy.deepcopy(traced), copy.copy(traced), torch.load(file, weights_only=False)):
        assert other.code == traced.code and torch.equal(other(x)["z"], traced(x)["z"])
        assert other.graph is not traced.graph and other.graph.owning_module is other
        other.graph.output_node().args = (1,)
        other.recompile()
        assert other(x) == 1
    assert traced(x)["z"].shape == (2, 4)


def test_interpreters_run_and_transform_graphs():
    class Signs(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(torch.sub if target is operator.add else target, args, kwargs)

    traced = fx.symbolic_trace(lambda x, y=3.0: torch.tanh(x) + y)
    x = torch.ones(2)
    assert torch.equal(fx.Interpreter(traced).run(x, 1.0), x.tanh() + 1)
    assert torch.equal(Signs(traced).transform()(x, 1.0), x.tanh() - 1)
    failing = fx.symbolic_trace(lambda x: x @ torch.ones(5, 5))
    with pytest.raises(RuntimeError) as raised:
        fx.Interpreter(failing).run(x)
    assert "While executing %matmul" in raised.value.__notes__[0]
    ShapeProp(traced).propagate(x)
    assert traced.graph.find_nodes(op="call_function")[0].meta["tensor_meta"].shape == (2,)


def test_a_graph_is_traced_again_and_run_with_arguments_that_go():
    traced = fx.symbolic_trace(fx.symbolic_trace(lambda x: torch.relu(x) + 1))
    list(traced.graph.nodes)[1]._rename("x")
    assert [node.name for node in traced.graph.nodes] == ["x", "x_1", "add", "output"]

    class Looking(fx.Interpreter):
        def call_function(self, target, args, kwargs):
            assert gone() is None or target is torch.relu
            return super().call_function(target, args, kwargs)

    arguments = [torch.ones(2)]
    gone = weakref.ref(arguments[0])
    assert Looking(traced).boxed_run(arguments).tolist() == [2.0, 2.0] and arguments == []


def test_a_pattern_is_replaced_where_nothing_else_uses_what_is_within():
    def function(x, w, b):
        first = torch.add(torch.mul(x, w), b)
        kept = torch.mul(first, w)
        return torch.add(kept, b) + kept + torch.add(torch.mul(first, b), w)

    traced = fx.symbolic_trace(function)
    args = [torch.tensor([number]) for number in (2.0, 3.0, 5.0)]
    wanted = traced(*args)
    matches = fx.replace_pattern(
        traced, lambda a, b, c: torch.add(torch.mul(a, b), c), lambda a, b, c: torch.addcmul(c, a, b)
    )
    assert len(matches) == 2 and traced.code.count("addcmul(") == 2 and traced.code.count("mul(") == 3
    traced.graph.lint()
    assert torch.equal(traced(*args), wanted)
