"""Functions made of several ops that are one of PyTorch's: what that is called, and its arguments.

By default they are those of the function: by position without trailing defaults, and by name those that have to be.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...backend import device as devices
from ...core.tensor import Tensor
from .names import Call, listed, same, trimmed

Bound = inspect.BoundArguments
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def _values_of(bound: Bound) -> dict[str, Any]:
    """All arguments by name, defaults filled in."""
    bound.apply_defaults()
    return dict(bound.arguments)


def usual(name: str, overload: str = "default", lists: tuple[str, ...] = ()) -> Callable[[Bound], Call]:
    """The call of `name` with the function's arguments. lists: those that PyTorch makes a list of."""

    def call(bound: Bound) -> Call:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        values, defaults = _values_of(bound), list[Any]()
        for parameter in bound.signature.parameters.values():
            value: Any = values[parameter.name]
            if parameter.name in lists:
                value = value if value is None else listed(value)
            if parameter.kind is parameter.VAR_POSITIONAL:
                args.append(listed(value[0] if len(value) == 1 else value))
                defaults.append(None)
            elif parameter.kind is parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif parameter.kind is not parameter.KEYWORD_ONLY:
                args.append(value)
                defaults.append(parameter.default)
            elif not same(value, parameter.default):
                kwargs[parameter.name] = value
        return Call(name, trimmed(args, defaults), kwargs, overload)

    return call


def _scatter(bound: Bound) -> Any:
    bound.apply_defaults()
    values = bound.arguments
    if values.get("reduce") is not None:
        return NotImplemented
    source = values.get("src")
    if source is None:
        source = values.get("value")
    overload = "src" if isinstance(source, Tensor) else "value"
    return Call("scatter", (values["input"], values["dim"], values["index"], source), {}, overload)


def _index_fill(bound: Bound) -> Call:
    kind = "int_Tensor" if isinstance(bound.arguments.get("value"), Tensor) else "int_Scalar"
    return usual("index_fill", kind)(bound)


def _split(bound: Bound) -> Any:
    size = next(
        (bound.arguments[n] for n in ("split_size_or_sections", "split_size") if n in bound.arguments), None
    )
    if not isinstance(size, int):
        return NotImplemented
    bound.apply_defaults()
    dim = bound.arguments["dim"]
    return Call(
        "split", trimmed((next(iter(bound.arguments.values())), size, dim), (None, None, 0)), {}, "Tensor"
    )


def _sort(bound: Bound) -> Call:
    call = usual("sort")(bound)
    return call._replace(overload="stable") if "stable" in call.kwargs else call


def _transposed_convolution(dims: int) -> Callable[[Bound], Call]:
    def call(bound: Bound) -> Call:
        bound.apply_defaults()
        values = bound.arguments

        *windows, more = (
            listed(values[n], dims) for n in ("stride", "padding", "dilation", "output_padding")
        )
        operands = (values[n] for n in ("input", "weight", "bias"))
        return Call("convolution", (*operands, *windows, True, more, values["groups"]))

    return call


def _vector_norm(bound: Bound) -> Call:
    bound.apply_defaults()
    values = bound.arguments
    x, ord, dim, keepdim = (values[n] for n in ("x", "ord", "dim", "keepdim"))
    kwargs = {} if values.get("dtype") is None else {"dtype": values["dtype"]}
    return Call(
        "linalg_vector_norm",
        trimmed((x, ord, dim if dim is None else listed(dim), keepdim), (None, 2, None, False)),
        kwargs,
    )


def _layer_norm(bound: Bound) -> Call:
    bound.apply_defaults()
    values = bound.arguments
    shape = values["normalized_shape"]
    return Call(
        "native_layer_norm", (values["input"], listed(shape), values["weight"], values["bias"], values["eps"])
    )


def _group_norm(bound: Bound) -> Call:
    bound.apply_defaults()
    values = bound.arguments
    x, groups = values["input"], values["num_groups"]
    size = 1
    for n in x.shape[2:]:
        size *= n
    return Call(
        "native_group_norm", (x, values["weight"], values["bias"], *x.shape[:2], size, groups, values["eps"])
    )


def _batch_norm(bound: Bound) -> Call:
    bound.apply_defaults()
    values = bound.arguments
    names = ("input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps")
    return Call("native_batch_norm", tuple(values[n] for n in names))


def _nll_loss(bound: Bound) -> Any:
    bound.apply_defaults()
    values = bound.arguments
    if values["input"].ndim > 2 or values["reduction"] not in _REDUCTIONS:
        return NotImplemented
    reduction = _REDUCTIONS[values["reduction"]]
    return Call(
        "nll_loss_forward",
        (values["input"], values["target"], values["weight"], reduction, values["ignore_index"]),
    )


def _loss(name: str, *options: str) -> Callable[[Bound], Any]:
    """options: what PyTorch takes after input and target, the reduction and its default among them."""

    def call(bound: Bound) -> Any:
        bound.apply_defaults()
        values = bound.arguments
        if values.get("reduction") not in _REDUCTIONS or (
            values.get("weight") is not None and "weight" not in options
        ):
            return NotImplemented
        given = [_REDUCTIONS[values[o]] if o == "reduction" else values[o] for o in options]
        defaults = [{"reduction": 1, "beta": 1.0, "delta": 1.0}.get(o) for o in options]
        return Call(name, trimmed((values["input"], values["target"], *given), (None, None, *defaults)))

    return call


def _made(name: str, overload: str = "default", sizes: str | None = "size") -> Callable[[Bound], Any]:
    """A function that makes a tensor of numbers: on a device, as PyTorch fills in, and not in pinned memory."""

    def call(bound: Bound) -> Any:
        bound.apply_defaults()
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in bound.signature.parameters.values():
            value = bound.arguments[parameter.name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                args.append(
                    listed(value[0] if len(value) == 1 and isinstance(value[0], (tuple, list)) else value)
                )
            elif parameter.kind is parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                if value is not None and parameter.name not in (
                    "requires_grad",
                    "pin_memory",
                    "xp",
                    "source",
                ):
                    kwargs[parameter.name] = value
            else:
                args.append(listed(value) if parameter.name == sizes else value)
        kwargs["device"] = devices.of(kwargs["device"] if "device" in kwargs else devices.default())
        return Call(name, tuple(args), {**kwargs, "pin_memory": False}, overload)

    return call


def _arange(bound: Bound) -> Any:
    call = _made("arange", sizes=None)(bound)
    numbers = tuple(v for v in call.args if v is not None)
    overload = ("default", "start", "start_step")[len(numbers) - 1] if numbers else "default"
    return call._replace(args=numbers, overload=overload)


def _randint(bound: Bound) -> Any:
    call = _made("randint")(bound)
    low, high, size = (*call.args, None, None)[:3]
    if size is None or size == [None]:
        return call._replace(args=(low, listed(high)))
    return call._replace(args=(low, high, size), overload="low")


def _alike(name: str) -> Callable[[Bound], Call]:
    """A tensor like another, or of its dtype and on its device."""

    def call(bound: Bound) -> Call:
        bound.apply_defaults()
        found = usual(name)(bound)
        first = next(iter(bound.arguments.values()))
        rest = next(
            (
                v
                for n, v in bound.arguments.items()
                if bound.signature.parameters[n].kind is inspect.Parameter.VAR_POSITIONAL
            ),
            (),
        )
        if name in ("new_zeros", "new_ones", "new_empty"):
            rest = (listed(rest[0] if len(rest) == 1 else rest),)
        elif name.startswith("new_") and rest:
            rest = (listed(rest[0]), *rest[1:])
        found = found._replace(args=(first, *rest))
        kwargs = {
            k: v
            for k, v in found.kwargs.items()
            if v is not None and k not in ("requires_grad", "pin_memory")
        }
        return found._replace(kwargs={**kwargs, "pin_memory": False})

    return call


def _writes(name: str, overload: str = "default") -> Callable[..., Call]:
    return lambda *args, **kwargs: Call(
        name, args, {k: v for k, v in kwargs.items() if v is not None}, overload
    )


def _fill(x: Any, value: Any) -> Call:
    return Call("fill_", (x, value), {}, "Tensor" if isinstance(value, Tensor) else "Scalar")


def _copy(x: Any, src: Any, non_blocking: bool = False) -> Call:
    return Call("copy_", (x, src, True) if non_blocking else (x, src))


def _bernoulli_in_place(x: Any, p: Any = 0.5, **kwargs: Any) -> Call:
    return Call("bernoulli_", (x, p), kwargs, "Tensor" if isinstance(p, Tensor) else "float")


def _scatter_in_place(x: Any, dim: int, index: Any, src: Any = None, **kwargs: Any) -> Call:
    src = kwargs.pop("value", src)
    kind = "src" if isinstance(src, Tensor) else "value"
    return Call("scatter_", (x, dim, index, src), kwargs, f"{kind}_reduce" if "reduce" in kwargs else kind)


LEAVES: dict[str, Callable[[Bound], Any]] = {
    **{n: usual(n) for n in (
        "addmm", "addmv", "addr", "addbmm", "baddbmm", "trace", "diag_embed", "index_add", "index_copy", "index_reduce",
        "take", "put", "masked_select", "masked_scatter", "unique_consecutive", "bincount", "histc", "equal", "multinomial",
        "bernoulli", "as_strided", "rot90", "aminmax", "cdist", "renorm", "dist", "logcumsumexp", "nonzero", "is_same_size",
        "view_as_real", "view_as_complex", "allclose", "log_sigmoid", "clamp_min",
        "clamp_max", "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo", "bitwise_count",
    )},
    "sort": _sort, "topk": usual("topk"), "kthvalue": usual("kthvalue"), "mode": usual("mode"),
    "scatter_reduce": usual("scatter_reduce", "two"),
    **{f"avg_pool{n}d": usual(f"avg_pool{n}d", lists=("kernel_size", "stride")) for n in (1, 2, 3)},
    "pixel_shuffle": usual("pixel_shuffle"),
    **{f"conv_transpose{n}d": _transposed_convolution(n) for n in (1, 2, 3)},
    "searchsorted": usual("searchsorted", "Tensor"), "bucketize": usual("bucketize", "Tensor"),
    "isin": usual("isin", "Tensor_Tensor"), "index_fill": _index_fill, "scatter": _scatter, "split": _split,
    "linalg_vector_norm": _vector_norm, "linalg_cross": usual("linalg_cross"),
    "layer_norm": _layer_norm, "group_norm": _group_norm, "batch_norm": _batch_norm, "nll_loss": _nll_loss,
    "mse_loss": _loss("mse_loss", "reduction"), "smooth_l1_loss": _loss("smooth_l1_loss", "reduction", "beta"),
    "huber_loss": _loss("huber_loss", "reduction", "delta"),
    "binary_cross_entropy": _loss("binary_cross_entropy", "weight", "reduction"),
    "binary_cross_entropy_with_logits": _loss("binary_cross_entropy_with_logits", "weight", "pos_weight", "reduction"),
    **{n: _made(n) for n in ("zeros", "ones", "full", "rand", "randn", "randperm", "linspace", "logspace", "eye")},
    "empty": _made("empty", "memory_format"), "arange": _arange, "randint": _randint,
    **{n: _alike(n) for n in ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like",
                              "new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided")},
}  # fmt: skip
"""By the name of a function, for its bound arguments; NotImplemented for arguments that make it something else."""

IN_PLACE: dict[str, Callable[..., Call]] = {
    "zero_": _writes("zero_"), "fill_": _fill, "copy_": _copy, "bernoulli_": _bernoulli_in_place,
    **{n: _writes(n) for n in ("normal_", "uniform_", "random_", "exponential_", "cauchy_", "log_normal_", "geometric_",
                               "t_", "squeeze_", "unsqueeze_", "transpose_", "scatter_add_", "index_add_", "index_copy_")},
    "resize_": lambda x, *size: Call("resize_", (x, listed(size[0] if len(size) == 1 else size))),
    "index_put_": lambda x, i, v, accumulate=False: Call("index_put_", (x, listed(i), v, *([True] if accumulate else []))),
    "scatter_": _scatter_in_place, "index_fill_": lambda x, dim, i, v: Call(
        "index_fill_", (x, dim, i, v), {}, "int_Tensor" if isinstance(v, Tensor) else "int_Scalar"),
    "masked_fill_": lambda x, m, v: Call("masked_fill_", (x, m, v), {}, "Tensor" if isinstance(v, Tensor) else "Scalar"),
}  # fmt: skip
"""By the name of a method that changes its tensor, for its arguments."""
