"""`opcheck`: whether an op does what was said of it when it was registered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..autograd import backward
from ..core.tensor import Tensor
from ..ops.reduction.queries import allclose
from .custom_ops import CustomOpDef, tensors_in


class OpCheckError(Exception):
    """An op does not do what was said of it."""


class MetadataMismatchError(AssertionError):
    """What `register_fake` gave says another shape, dtype or order of memory than the op's result has."""


def opcheck(
    op: CustomOpDef,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = (
        "test_schema",
        "test_autograd_registration",
        "test_faketensor",
        "test_aot_dispatch_dynamic",
    ),
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Run an op on arguments, and compare what it does with what it was registered with. Returns {test: "SUCCESS" or the error}.

    test_schema: it changes, and returns views of, those arguments only of which its schema says so.
    test_autograd_registration: its results require a gradient where an argument does.
    test_faketensor: `register_fake` gives shape, dtype and strides of its results.
    test_aot_dispatch_dynamic, test_aot_dispatch_static: there is a gradient, and a second run has the same results and
    gradients, to `rtol` and `atol`. Nothing is compiled.

    raise_exception: raise the first error, as `OpCheckError`. Give arguments that require gradients, if the op has one.
    """
    if not isinstance(op, CustomOpDef):
        raise ValueError(f"opcheck(op, ...): op must be one that torch.library registered, got {type(op)}")
    chosen = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    if not set(chosen) <= _TESTS.keys():
        raise ValueError(
            f"opcheck(op, ..., test_utils={chosen}), expected test_utils to be a subset of {tuple(_TESTS)}"
        )
    results: dict[str, Any] = {}
    tolerance = {"rtol": 1e-5 if rtol is None else rtol, "atol": 1e-8 if atol is None else atol}
    for name in chosen:
        try:
            _TESTS[name](op, args, dict(kwargs or {}), tolerance)
        except Exception as error:  # whatever the op raises
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error}") from error
            results[name] = error
        else:
            results[name] = "SUCCESS"
    return results


def _copied(value: Any, copy: Callable[[Tensor], Tensor]) -> Any:
    """`value` with a copy of each tensor in it."""
    if isinstance(value, Tensor):
        return copy(value)
    if isinstance(value, (list, tuple)):
        return type(value)([_copied(one, copy) for one in value])
    return {key: _copied(one, copy) for key, one in value.items()} if isinstance(value, dict) else value


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _once_removed(tensor: Tensor) -> Tensor:
    """As users' tensors mostly are: a result, which may be changed in place."""
    return _leaf(tensor).view_as(tensor) if tensor.requires_grad else tensor.detach().clone()


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, dict):
        value = tuple(value.values())
    return list(tensors_in(value if isinstance(value, (list, tuple)) else (value,)))


def _test_schema(op: CustomOpDef, args: Any, kwargs: Any, _: Any) -> None:
    bound = op._schema.signature.bind(*_copied(args, _once_removed), **_copied(kwargs, _once_removed))
    before = {name: _copied(value, lambda t: t.detach().clone()) for name, value in bound.arguments.items()}
    result = op(*bound.args, **bound.kwargs)
    returned = _tensors(result)
    for name, value in bound.arguments.items():
        for old, new in zip(_tensors(before[name]), _tensors(value), strict=True):
            if name in op._schema.changed:
                continue
            if not allclose(old, new.detach(), 0, 0, equal_nan=True):
                raise RuntimeError(f"Argument {name} is not defined as mutable but was mutated")
            if any(one._versions is new._versions for one in returned):
                raise RuntimeError(f"Argument {name} is not defined to alias output but was aliasing")


def _test_autograd_registration(op: CustomOpDef, args: Any, kwargs: Any, _: Any) -> None:
    args, kwargs = _copied(args, _once_removed), _copied(kwargs, _once_removed)
    if not any(tensor.requires_grad for tensor in (*_tensors(args), *_tensors(kwargs))):
        return
    floats = [tensor for tensor in _tensors(op(*args, **kwargs)) if tensor.dtype.category > 1]
    if floats and not any(tensor.requires_grad for tensor in floats):
        raise AssertionError(f"{op._qualname}: no result requires a gradient, although an argument does")


def _require_fake(op: CustomOpDef) -> bool:
    """Whether the op has one; an op that only changes arguments needs none."""
    if "meta" in op._kernels:
        return True
    if op._schema.changed and not op._schema.results:
        return False
    raise RuntimeError(
        f"There was no fake impl registered for {op!r}. Please use `{op._name}.register_fake` to add one."
    )


def _on_meta(tensor: Tensor) -> Tensor:
    return tensor.new_empty_strided(tensor.shape, tensor.stride(), device="meta")


def _test_faketensor(op: CustomOpDef, args: Any, kwargs: Any, _: Any) -> None:
    if not _require_fake(op):
        return
    said = op(*_copied(args, _on_meta), **_copied(kwargs, _on_meta))
    found = op(*_copied(args, _once_removed), **_copied(kwargs, _once_removed))
    pairs = _tensors(said), _tensors(found)
    if len(pairs[0]) != len(pairs[1]):
        raise MetadataMismatchError(
            f"{op._qualname}: its fake impl returns {len(pairs[0])} tensors, and the op {len(pairs[1])}"
        )
    for place, (fake, real) in enumerate(zip(*pairs, strict=True)):
        for what, a, b in (
            ("Shapes", tuple(fake.shape), tuple(real.shape)),
            ("Dtypes", fake.dtype, real.dtype),
            ("Strides", _strides(fake), _strides(real)),
        ):
            if a != b:
                raise MetadataMismatchError(
                    f"{op._qualname}: {what} of its result {place} are {a} by its fake impl, and {b} by the op"
                )


def _strides(tensor: Tensor) -> list[int]:
    """Those that matter: of dimensions with several elements."""
    return [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1] if tensor.numel() else []


def _test_gradient(op: CustomOpDef, args: Any, kwargs: Any, tolerance: dict[str, float]) -> None:
    _require_fake(op)
    first, second = (list(_run(op, args, kwargs)) for _ in range(2))
    if len(first) != len(second) or not all(
        allclose(a, b, **tolerance, equal_nan=True) for a, b in zip(first, second, strict=True)
    ):
        raise AssertionError(f"{op._qualname}: two runs have different results or gradients")


def _run(op: CustomOpDef, args: Any, kwargs: Any) -> Iterator[Tensor]:
    """The op's results, and the gradients of its arguments."""
    leaves: list[Tensor] = []

    def given(tensor: Tensor) -> Tensor:
        leaves.append(_leaf(tensor))
        return leaves[-1].view_as(tensor)

    args, kwargs = _copied(args, given), _copied(kwargs, given)
    results = _tensors(op(*args, **kwargs))
    roots = [tensor for tensor in results if tensor.requires_grad]
    if roots:
        backward(roots, [root.detach().new_ones(root.shape) for root in roots])
    yield from (result.detach() for result in results)
    yield from (leaf.grad for leaf in leaves if leaf.grad is not None)


_TESTS: dict[str, Callable[[CustomOpDef, Any, Any, Any], None]] = {
    "test_schema": _test_schema,
    "test_autograd_registration": _test_autograd_registration,
    "test_faketensor": _test_faketensor,
    "test_aot_dispatch_static": _test_gradient,
    "test_aot_dispatch_dynamic": _test_gradient,
}
