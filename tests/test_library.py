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
