"""What PyTorch calls an op of ours: its overload, and the arguments in the order and form of PyTorch's schema.

Most follow from the declaration: the op's own name, its arguments without trailing defaults, and a sequence where
PyTorch has one. `TABLE` says the others, as functions of the op's arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.size import contiguous_format
from ...core.tensor import Tensor
from ...ops.creation.data import as_tensor

if TYPE_CHECKING:
    from ...ops.dispatch.declare import Op

_MOST = 2**63 - 1  # the end of a slice that has none


class Call(NamedTuple):
    """One call of one of PyTorch's ops."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = {}
    overload: str = "default"


Maker = Callable[..., Call]

FIRST = frozenset({"native_layer_norm", "native_group_norm", "native_batch_norm", "nll_loss_forward",
                   "_scaled_dot_product_flash_attention_for_cpu"})  # fmt: skip
"""Of whose results users see the first."""


def listed(value: Any, count: int = 1) -> Any:
    """Sizes and dimensions as the list that PyTorch makes of them; one number stands for `count`."""
    return list(value) if isinstance(value, (tuple, list)) else [value] * count


def trimmed(values: Sequence[Any], defaults: Sequence[Any]) -> tuple[Any, ...]:
    """`values` without those at the end that are the default."""
    kept = len(values)
    while kept and same(values[kept - 1], defaults[kept - 1]):
        kept -= 1
    return tuple(values[:kept])


def same(value: Any, default: Any) -> bool:
    """Whether an argument is its default."""
    return value is default or (
        not isinstance(value, Tensor) and type(value) is type(default) and value == default
    )


def _kind(other: Any) -> str:
    return "Tensor" if isinstance(other, Tensor) else "Scalar"


def _arithmetic(name: str) -> Maker:
    """Sums and products: a number is a Tensor to PyTorch, and comes second."""
    return lambda a, b: Call(name, (a, b) if isinstance(a, Tensor) else (b, a), {}, "Tensor")


def _sub(a: Any, b: Any) -> Call:
    return Call("sub", (a, b), {}, "Tensor") if isinstance(a, Tensor) else Call("rsub", (b, a), {}, "Scalar")


def _by_second(name: str, scalar: str = "Scalar", first: str = "Scalar_Tensor") -> Maker:
    def call(a: Any, b: Any) -> Call:
        return Call(
            name,
            (a, b),
            {},
            first if not isinstance(a, Tensor) else "Tensor" if isinstance(b, Tensor) else scalar,
        )

    return call


def _pow(a: Any, b: Any) -> Call:
    overload = "Scalar" if not isinstance(a, Tensor) else f"Tensor_{_kind(b)}"
    return Call("pow", (a, b), {}, overload)


def _reduced(name: str, overload: str, one: bool = False) -> Maker:
    """A reduction over all or over dimensions; `one` dimension, which is a number."""

    def call(input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Call:
        kwargs = {} if dtype is None else {"dtype": dtype}
        if dim is None and not keepdim:
            return Call(name, (input,), kwargs)
        several = isinstance(dim, (tuple, list))
        place = dim if (one and not several) or dim is None else listed(dim)
        return Call(
            name,
            trimmed((input, place, keepdim), (None, None, False)),
            kwargs,
            "dims" if one and several else overload,
        )

    return call


def _statistic(name: str) -> Maker:
    def call(input: Any, dim: Any, correction: Any, keepdim: bool, unbiased: Any) -> Call:
        if unbiased is not None:
            correction = int(unbiased)
        args = (input,) if dim is None else (input, listed(dim))
        kwargs = {} if dim is None and correction == 1 else {"correction": correction}
        return Call(name, args, kwargs | ({"keepdim": True} if keepdim else {}), "correction")

    return call


def _clamp(input: Any, low: Any, high: Any) -> Call:
    overload = "Tensor" if isinstance(low, Tensor) or isinstance(high, Tensor) else "default"
    return Call("clamp", (input, low) if high is None else (input, low, high), {}, overload)


def _squeeze(input: Any, dim: Any = None) -> Call:
    if dim is None:
        return Call("squeeze", (input,))
    several = isinstance(dim, (tuple, list))
    return Call("squeeze", (input, list(dim) if several else dim), {}, "dims" if several else "dim")


def _slice_by(input: Any, index: Any) -> Call:
    """An index with one entry that changes something, as `telling` takes it apart."""
    entries = [i for i in (index if isinstance(index, tuple) else (index,)) if i is not Ellipsis]
    dim = next((d for d, i in enumerate(entries) if i != slice(None)), None)
    if dim is None:
        return Call("alias", (input,))
    entry = entries[dim]
    if entry is None:
        return Call("unsqueeze", (input, dim))
    if isinstance(entry, slice):
        start = 0 if entry.start is None else entry.start
        end = _MOST if entry.stop is None else entry.stop
        step = () if entry.step in (None, 1) else (entry.step,)
        return Call("slice", (input, dim, start, end, *step), {}, "Tensor")
    return Call("select", (input, dim, int(entry)), {}, "int")


def without_ellipsis(entries: list[Any], ndim: int) -> list[Any]:
    """The entries of an index of a tensor, with what an Ellipsis stands for."""
    place = next((i for i, e in enumerate(entries) if e is Ellipsis), None)
    if place is None:
        return entries
    taken = sum(_dims_of(entry) for entry in entries)
    return [*entries[:place], *[slice(None)] * (ndim - taken), *entries[place + 1 :]]


def _dims_of(entry: Any) -> int:
    """How many dimensions an entry of an index stands for."""
    if entry is None or entry is Ellipsis:
        return 0
    return (
        entry.ndim
        if hasattr(entry, "ndim") and str(entry.dtype) in ("bool", "torch.bool", "torch.uint8")
        else 1
    )


def _index_by(input: Any, index: Any) -> Call:
    entries = without_ellipsis(list(index) if isinstance(index, tuple) else [index], input.ndim)
    while entries and isinstance(entries[-1], slice):
        entries.pop()
    return Call(
        "index", (input, [None if isinstance(e, slice) else _tensor(e) for e in entries]), {}, "Tensor"
    )


def _tensor(entry: Any) -> Any:
    return entry if isinstance(entry, Tensor) else as_tensor(entry)


def _values(name: str) -> Maker:
    """Values and places along a dimension."""

    def call(input: Any, dim: int, keepdim: bool = True, options: tuple[Any, ...] = ()) -> Call:
        return Call(name, (input, dim, *([True] if keepdim else [])), {}, "dim")

    return call


def _sort(input: Any, dim: int, keepdim: bool = True, options: tuple[Any, ...] = ()) -> Call:
    return Call("sort", trimmed((input, dim, *options), (None, -1, False)))


def _topk(input: Any, dim: int, keepdim: bool = True, options: tuple[Any, ...] = ()) -> Call:
    k, *how = options
    last = dim in (-1, input.ndim - 1)
    return Call("topk", trimmed((input, k, -1 if last else dim, *how), (None, None, -1, True, True)))


def _kthvalue(input: Any, dim: int, keepdim: bool = True, options: tuple[Any, ...] = ()) -> Call:
    return Call("kthvalue", trimmed((input, options[0] + 1, dim, keepdim), (None, None, -1, False)))


def _convolution(x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Call:
    dims = w.ndim - 2
    steps, pads, spread = (listed(v, dims) for v in (stride, padding, dilation))
    return Call("convolution", (x, w, b, steps, pads, spread, False, [0] * dims, groups))


def _pad(input: Any, widths: Any, value: Any = 0.0) -> Call:
    pairs = [n for pair in reversed(list(widths)) for n in pair]
    while len(pairs) > 2 and pairs[-2:] == [0, 0]:
        del pairs[-2:]
    return Call("constant_pad_nd", (input, pairs, value))


def _pool(input: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool = False) -> Call:
    k, s, p, d = map(listed, (kernel, stride, padding, dilation))
    args = trimmed(
        (input, k, [] if s == k else s, p, d, ceil_mode), (None, None, [], [0] * len(k), [1] * len(k), False)
    )
    return Call(f"max_pool{len(k)}d_with_indices", args)


def _with(name: str, overload: str = "default") -> Maker:
    """An op that PyTorch calls otherwise."""

    def call(*values: Any) -> Call:
        return Call(name, values, {}, overload)

    call.__dict__["trims"] = True
    return call


_SIZES = ("view", "permute", "expand", "repeat", "flip")

TABLE: dict[str, Maker] = {
    "add": _arithmetic("add"), "mul": _arithmetic("mul"), "div": _arithmetic("div"), "sub": _sub, "pow": _pow,
    "scaled_sum": lambda a, b, alpha: Call("add", (a, b), {"alpha": alpha}, "Tensor"),
    "div_floor": lambda a, b: Call("div", (a, b), {"rounding_mode": "floor"}, f"{_kind(b)}_mode"),
    "div_trunc": lambda a, b: Call("div", (a, b), {"rounding_mode": "trunc"}, f"{_kind(b)}_mode"),
    "square": lambda x: Call("pow", (x, 2), {}, "Tensor_Scalar"),
    **{n: _by_second(n) for n in ("remainder", "fmod", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or",
                                  "bitwise_xor", "copysign")},
    "bitwise_left_shift": _by_second("__lshift__"), "bitwise_right_shift": _by_second("__rshift__"),
    "xlogy": _by_second("xlogy", "Scalar_Other", "Scalar_Self"),
    "ldexp": _with("ldexp", overload="Tensor"),
    "xlog1py": _with("special_xlog1py"), "zeta": _with("special_zeta"), "frexp": _with("frexp", overload="Tensor"),
    "masked_fill": lambda x, m, v: Call("masked_fill", (x, m, v), {}, _kind(v)),
    "lerp": lambda x, y, w: Call("lerp", (x, y, w), {}, _kind(w)),
    "where": lambda c, x, y: Call("where", (c, x, y), {}, "self"),
    "clamp": _clamp,
    "round": lambda x, decimals: Call("round", (x,), {"decimals": decimals}, "decimals") if decimals else Call("round", (x,)),
    "cast": lambda x, dtype: Call("_to_copy", (x,), {"dtype": dtype}),
    "move": lambda x, device, *_: Call("_to_copy", (x,), {"device": device}),
    "to_contiguous": lambda x: Call("clone", (x,), {"memory_format": contiguous_format}),
    "clone": lambda x, order: Call("clone", (x,), {} if order is None else {"memory_format": order}),
    "addcmul": lambda x, a, b, v: Call("addcmul", (x, a, b), {} if v == 1 else {"value": v}),
    "addcdiv": lambda x, a, b, v: Call("addcdiv", (x, a, b), {} if v == 1 else {"value": v}),
    "prelu_kernel": _with("_prelu_kernel"),
    "polygamma": lambda x, n: Call("polygamma", (n, x)),
    "gelu": lambda x, kind: Call("gelu", (x,), {} if kind == "none" else {"approximate": kind}),
    "selu": lambda x: Call("elu", (x, 1.6732632423543772, 1.0507009873554805)),
    "elu": lambda x, alpha: Call("elu", (x, alpha)), "hardtanh": lambda x, low, high: Call("hardtanh", (x, low, high)),
    "softmax": lambda x, dim, dtype: Call("_softmax", (x, dim, False)),
    "log_softmax": lambda x, dim, dtype: Call("_log_softmax", (x, dim, False)),
    "sum": _reduced("sum", "dim_IntList"), "mean": _reduced("mean", "dim"), "prod": _reduced("prod", "dim_int", one=True),
    "nansum": _reduced("nansum", "default"), "any": _reduced("any", "dim", one=True), "all": _reduced("all", "dim", one=True),
    "count_nonzero": _reduced("count_nonzero", "dim_IntList"),
    **{n: lambda x, dim, keep=False, n=n: Call(n, trimmed((x, [] if dim is None else listed(dim), keep), (None, [], False)))
       for n in ("amax", "amin", "logsumexp")},
    **{n: _statistic(n) for n in ("var", "std", "var_mean", "std_mean")},
    "cumsum": lambda x, dim, dtype: Call("cumsum", (x, dim), {} if dtype is None else {"dtype": dtype}),
    "cumprod": lambda x, dim, dtype: Call("cumprod", (x, dim), {} if dtype is None else {"dtype": dtype}),
    **{f"{n}_values": _values(n) for n in ("max", "min", "median", "nanmedian")},
    "mode_values": lambda x, dim, keep=True, o=(): Call("mode", trimmed((x, dim, keep), (None, -1, False))),
    "cummax_values": lambda x, dim, keep=True, o=(): Call("cummax", (x, dim)),
    "cummin_values": lambda x, dim, keep=True, o=(): Call("cummin", (x, dim)),
    "sort_values": _sort, "topk_values": _topk, "kthvalue_values": _kthvalue,
    "max_of_all": lambda x: Call("max", (x,)), "min_of_all": lambda x: Call("min", (x,)),
    "median_of_all": lambda x, skip: Call("nanmedian" if skip else "median", (x,)),
    "slice_by": _slice_by, "index_by": _index_by,
    "index_put": lambda x, index, value: Call("index_put", (x, _index_by(x, index).args[1], _tensor(value))),
    "select": _with("select", overload="int"), "transpose": _with("transpose", overload="int"), "squeeze": _squeeze,
    "unbind": _with("unbind", overload="int"), "view_dtype": _with("view", overload="dtype"),
    "narrow": lambda x, dim, start, length: Call("slice", (x, dim, start, start + length), {}, "Tensor"),
    "split_with_sizes": lambda x, sizes, dim: Call("split_with_sizes", trimmed((x, list(sizes), dim), (None, None, 0))),
    **{n: lambda x, sizes, n=n: Call(n, (x, listed(sizes))) for n in _SIZES},
    "roll": lambda x, shifts, dims: Call("roll", (x, listed(shifts), *([] if dims is None else [listed(dims)]))),
    "constant_pad": _pad,
    "cat": lambda xs, dim: Call("cat", trimmed((list(xs), dim), (None, 0))),
    "stack": lambda xs, dim: Call("stack", trimmed((list(xs), dim), (None, 0))),
    "scatter_src": lambda x, dim, i, s: Call("scatter", (x, dim, i, s), {}, "src" if isinstance(s, Tensor) else "value"),
    "scatter_reduce_by": lambda x, dim, i, s, how, own: Call(
        "scatter_reduce", (x, dim, i, s, how), {} if own else {"include_self": False}, "two"),
    "conj": _with("_conj"),
    **{n: _with(f"linalg_{n}") for n in ("inv", "det", "solve", "eigvals", "eigvalsh", "svdvals")},
    **{f"{n}_factor": _with(f"linalg_{n}") for n in ("qr", "svd", "eigh", "eig")},
    "convolution": _convolution, "max_pool": _pool, "grid_sampler": lambda *args: Call(f"grid_sampler_{args[0].ndim - 2}d", args),
    "embedding_backward": lambda g, i, n, pad: Call("embedding_dense_backward", (g, _tensor(i), n, -1 if pad is None else pad, False)),
    "dropout_backward": lambda g, mask, p: Call("native_dropout_backward", (g, _tensor(mask), p)),
    "embedding_rows": lambda w, i, pad: Call("embedding", (w, i) if pad is None else (w, i, pad)),
    "attention": lambda q, k, v, mask, causal, scale: Call(
        "_scaled_dot_product_flash_attention_for_cpu", trimmed((q, k, v, 0.0, causal), (None, None, None, 0.0, False)),
        ({} if mask is None else {"attn_mask": mask}) | ({} if scale is None else {"scale": scale})),
    **{n: _with(f"special_{n}") for n in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0",
       "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "erfcx", "ndtri", "log_ndtr", "entr",
       "i0e", "i1", "i1e", "ndtr")},
}  # fmt: skip
"""By the name of an op of ours -> what PyTorch's is, for the op's arguments, all of which are given."""


def call_of(op: Op, values: Sequence[Any]) -> Call:
    """PyTorch's call for `op` with these arguments, of which none is left out."""
    maker = TABLE.get(op.name)
    if maker is None:
        return Call(op.name, trimmed(values, op.defaults))
    return maker(*(trimmed(values, op.defaults) if "trims" in maker.__dict__ else values))
