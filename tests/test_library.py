"""torch.library: what schemas say of arguments, and what an op may return."""

from collections.abc import Sequence

import pytest

import ddpgrad as torch

library = torch.library


def everything(
    a: torch.Tensor,
    b: torch.Tensor | None,
    c: list[torch.Tensor],
    d: Sequence[int],
    e: torch.dtype = torch.float32,
    f: list[float] | None = None,
    *,
    g: int | float | bool = 3,
    h: str = "ab",
) -> tuple[torch.Tensor, int]:
    raise NotImplementedError


def changes(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


def test_annotations_say_the_schema():
    assert library.infer_schema(everything, mutates_args=()) == (
        "(Tensor a, Tensor? b, Tensor[] c, SymInt[] d, ScalarType e=float32, float[]? f=None, *, Scalar g=3, "
        'str h="ab") -> (Tensor, SymInt)'
    )
    inferred = library.infer_schema(changes, mutates_args={"x"}, op_name="changes")
    assert inferred == "changes(Tensor(a0!) x, Tensor y) -> ()"
    assert library.infer_schema(changes, mutates_args="unknown") == "(Tensor(a0!) x, Tensor(a1!) y) -> ()"
    with pytest.raises(ValueError, match="'z'"):
        library.infer_schema(changes, mutates_args={"z"})


def untyped(x):
    return x


def returns_nothing_known(x: torch.Tensor):
    return x


def takes_a_dict(x: dict) -> torch.Tensor:
    return x["a"]


def takes_any_number(*x: torch.Tensor) -> torch.Tensor:
    return x[0]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (untyped, "must have a type annotation"),
        (returns_nothing_known, "No return type annotation"),
        (takes_a_dict, "unsupported type"),
        (takes_any_number, "varargs"),
    ],
)
def test_functions_that_say_no_schema_are_no_ops(function, words):
    with pytest.raises(ValueError, match=words):
        library.custom_op("tests_library::unsaid", function, mutates_args=())


def test_arguments_have_the_types_of_the_schema():
    @library.custom_op("tests_library::typed", mutates_args=())
    def typed(
        x: torch.Tensor, n: int, sizes: list[int], by: float = 1.0, o: str | None = None
    ) -> torch.Tensor:
        return x * n * by

    x = torch.ones(2)
    assert typed(x, 2, (1, 2), by=3).tolist() == [6.0, 6.0]
    for wrong in ((3, 2, [1]), (x, 2.0, [1]), (x, 2, 1), (x, 2, [1.5]), (x, 2, [1], 1.0, 4), (x,)):
        with pytest.raises(RuntimeError, match=r"tests_library::typed\(\)"):
            typed(*wrong)
    library.define("tests_library::by_schema", "(Tensor x, int[2] n, float y=inf) -> Tensor")
    library.impl("tests_library::by_schema", "cpu", lambda x, n, y: x + y)
    assert torch.ops.tests_library.by_schema(x, 2).tolist() == [float("inf")] * 2
    with pytest.raises(RuntimeError, match=r"type 'int\[2\]' for argument 'n'"):
        torch.ops.tests_library.by_schema(x, "a")


def test_results_are_no_views_of_arguments_or_of_one_another():
    @library.custom_op("tests_library::part", mutates_args=())
    def part(x: torch.Tensor) -> torch.Tensor:
        return x[:1]

    @library.custom_op("tests_library::twice", mutates_args=())
    def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y, y

    for op in (part, twice):
        with pytest.raises(RuntimeError, match="may not alias"):
            op(torch.ones(2))


def test_tensors_in_lists_have_gradients():
    @library.custom_op("tests_library::scaled", mutates_args=())
    def scaled(
        xs: list[torch.Tensor], by: torch.Tensor, *, twice: bool = False
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        return [x * by for x in xs], by * (2 if twice else 1)

    def remember(ctx, inputs, keyword_only_inputs, output):
        xs, ctx.by = inputs
        ctx.xs, ctx.twice, ctx.places = [*xs], keyword_only_inputs["twice"], len(output[0])
        ctx.asked = ctx.needs_input_grad

    def gradients(ctx, grads, grad):
        assert ctx.asked == ctx.needs_input_grad == ([True, False], True) and ctx.places == 2
        by = sum(g * x for g, x in zip(grads, ctx.xs, strict=True)) + grad * (2 if ctx.twice else 1)
        return [g * ctx.by for g in grads], by

    library.register_autograd(scaled, gradients, setup_context=remember)
    x, y, by = (torch.tensor([v], requires_grad=v != 3) for v in (2.0, 3.0, 5.0))
    (first, second), third = scaled([x, y], by, twice=True)
    (first + 10 * second + 100 * third).backward()
    assert (x.grad.item(), y.grad, by.grad.item()) == (5.0, None, 2.0 + 30.0 + 200.0)
    assert [y.tolist() for y in torch.vmap(scaled)([torch.ones(3, 2)], torch.arange(3.0))[0]] == [
        [[0, 0], [1, 1], [2, 2]]
    ]


def test_results_have_the_types_of_the_schema():
    @library.custom_op("tests_library::wrong", mutates_args=())
    def wrong(x: torch.Tensor, several: bool = True) -> torch.Tensor:
        return [x + 1] if several else 3

    for several in (True, False):
        with pytest.raises(RuntimeError, match="Unable to cast"):
            wrong(torch.ones(1), several)
    op = library.custom_op(
        "tests_library::renamed",
        lambda a, b=3: a * b,
        mutates_args=(),
        schema="(Tensor x, int y=3) -> Tensor",
    )
    assert (
        op(x=torch.ones(1)).item() == 3
        and torch.ops.tests_library.renamed.default._schema.arguments[1].name == "y"
    )
    with pytest.raises(ValueError, match="consistent"):
        library.custom_op("tests_library::no", lambda x: None, mutates_args=(), schema="(Tensor(a!) x) -> ()")
    with pytest.raises(RuntimeError, match="Tenso"):
        library.define("tests_library::no", "(Tenso x) -> Tensor")


def _op(name, function, fake=torch.empty_like, backward=lambda ctx, g: g * 2, **options):
    op = library.custom_op(
        f"tests_library::{name}", function, schema="(Tensor x) -> Tensor", mutates_args=(), **options
    )
    op.register_fake(fake)
    op.register_autograd(backward)
    return op


def test_opcheck_finds_what_is_wrong():
    x = torch.tensor([[1.0, 2.0, 3.0]] * 2, requires_grad=True)
    names = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    assert library.opcheck(_op("right", lambda x: x * 2), (x,)) == dict.fromkeys(names, "SUCCESS")
    bad = {
        "test_schema": _op("changing", lambda x: x.add_(1).clone()),
        "test_faketensor": _op("turned", lambda x: x.t().clone(), lambda x: x.new_empty(3, 2)),
        "test_aot_dispatch_dynamic": _op("short", lambda x: x * 2, backward=lambda ctx, g: g[:, :2]),
    }
    for name, op in bad.items():
        assert library.opcheck(op, (x,), raise_exception=False)[name] != "SUCCESS"
        with pytest.raises(Exception, match=f"{name} failed") as caught:
            library.opcheck(op, (x,), test_utils=name)
        assert type(caught.value).__name__ == "OpCheckError"
    without = library.custom_op(
        "tests_library::without", lambda x: x * 1, schema="(Tensor x) -> Tensor", mutates_args=()
    )
    found = library.opcheck(without, (x,), raise_exception=False)
    assert [str(found[name])[:17] for name in names] == [
        "SUCCESS",
        "SUCCESS",
        "There was no fake",
        "There was no fake",
    ]
    for wrong in ({"op": torch.sin}, {"op": without, "test_utils": "test_nothing"}):
        with pytest.raises(ValueError, match="opcheck"):
            library.opcheck(args=(x,), **wrong)


def test_kernels_for_autocast_and_vmap():
    @library.custom_op("tests_library::doubled", mutates_args=(), device_types="cpu")
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    x = torch.ones(2, 2)
    with pytest.raises(NotImplementedError, match="no kernel"):
        doubled(x.to("meta"))
    library.register_autocast(doubled, "cpu", torch.bfloat16)
    with torch.autocast("cpu"):
        assert doubled(x).dtype is torch.bfloat16
    assert torch.vmap(doubled)(x).tolist() == [[2.0, 2.0]] * 2

    @library.register_vmap("tests_library::doubled")
    def batched(info, in_dims, x):
        return x * 3, in_dims[0]

    assert torch.vmap(doubled)(x).tolist() == [[3.0, 3.0]] * 2
    doubled.register_kernel("cuda", lambda x: x)
    with doubled.set_kernel_enabled("cpu", enabled=False), pytest.raises(NotImplementedError):
        doubled(x)
    assert doubled(x).tolist() == [[2.0, 2.0]] * 2


def test_overloads_have_kernels_of_their_own():
    """As bitsandbytes defines its ops: one that returns its result, one that writes it, kernels by device or for all."""
    library = torch.library.Library("overloaded", "FRAGMENT")
    library.define("twice.out(Tensor x, Tensor! out) -> ()")
    torch.library.define("overloaded::twice", "(Tensor x) -> Tensor")
    torch.library.register_kernel("overloaded::twice", "default", lambda x: x * 2)

    @torch.library.register_kernel("overloaded::twice.out", "cpu")
    def write(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(x * 2)

    x, out = torch.ones(2), torch.zeros(2)
    twice = torch.ops.overloaded.twice
    assert twice(x).tolist() == twice.default(x).tolist() == [2.0, 2.0]
    assert twice.out(x, out) is None and out.tolist() == [2.0, 2.0] and out._version == 1
    assert sorted(twice.overloads()) == ["default", "out"] and twice.out._schema.changed == {"out"}
    with pytest.raises(AttributeError, match="no overload 'three'"):
        twice.three  # noqa: B018
