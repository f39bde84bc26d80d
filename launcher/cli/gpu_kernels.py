"""Every kernel of the CUDA backend once, in each floating-point type, against the CPU: values and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn, ops, optim
from ddpgrad.ops.dispatch.declare import OPS

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class Case(NamedTuple):
    """`call` of a device, a dtype and tensors of `shapes`, which have gradients.

    exact: the CPU uses `dtype`, too. roundings: of the largest element, that a result may be off: by default those of sums
    of some dozen terms, in another order.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    call: Callable[..., Any]
    exact: bool = False
    roundings: int = 8


def wrong(device: str, dtype: Any, case: Case) -> str:
    """What is wrong with a case on a GPU, or ''. The CPU computes it in float64, from the same rounded numbers."""
    results: list[list[np.ndarray]] = []
    try:
        for where, kind in (("cpu", dtype if case.exact else torch.float64), (device, dtype)):
            draw = np.random.default_rng(0)
            given = [torch.tensor(draw.standard_normal(shape)).to(dtype) for shape in case.shapes]
            given = [x.to(where, kind).requires_grad_() for x in given]
            torch.manual_seed(0)
            out = case.call(where, kind, *given)
            found = list(out) if isinstance(out, tuple) else [out]
            if found[0].requires_grad:
                ways = [torch.tensor(draw.standard_normal(x.shape)).to(dtype).to(where, kind) for x in found]
                found += [
                    g for g in torch.autograd.grad(found, given, ways, allow_unused=True) if g is not None
                ]
            if where != "cpu" and (
                odd := [x for x in found if x.is_floating_point() and x.dtype is not kind]
            ):
                return f"{odd[0].dtype} where {kind} is expected"
            results.append([x.detach().cpu().double().numpy() for x in found])
    except Exception as error:  # whatever a driver, a compiler or a kernel says is what is wrong
        return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    for part, (want, got) in enumerate(zip(*results, strict=True)):
        off = float(np.abs(got - want).max()) if np.isfinite(got).all() else float("nan")
        allowed = case.roundings * torch.finfo(dtype).eps * max(1.0, float(np.abs(want).max()))
        if want.shape != got.shape or not off <= allowed:
            return f"output {part} is off by {off:.1e}, more than {allowed:.1e}"
    return ""


def _plain(name: str, call: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
    return Case(name, shapes, lambda device, dtype, *tensors: call(*tensors))


def _with_integers(name: str, values: Any, call: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
    """As `_plain`, with a tensor of integers first."""
    return Case(
        name, shapes, lambda device, dtype, *tensors: call(torch.tensor(values, device=device), *tensors)
    )


def _reduced(mode: str) -> Case:
    def call(index: Any, x: Any, values: Any) -> Any:
        return x.scatter_reduce(0, index, values, reduce=mode)

    return _with_integers(f"scatter_reduce {mode}", [[0, 2, 0], [0, 1, 2]], call, (4, 3), (2, 3))


def _reduced_many(mode: str) -> Case:
    """So many to one place that several threads share them."""

    def call(index: Any, x: Any, values: Any) -> Any:
        exact = values.sign() if mode == "prod" else values  # of many others a product leaves the range
        return x.scatter_reduce(0, index, exact, reduce=mode)

    return _with_integers(
        f"scatter_reduce {mode}, many", [i // 600 for i in range(1500)], call, (4,), (1500,)
    )


def _step(name: str, **options: Any) -> Case:
    """Two steps over a parameter and over two: one array and a table of arrays are different kernels."""

    def call(device: str, dtype: Any, *tensors: Any) -> Any:
        alone, first, second = [nn.Parameter(x.detach().clone()) for x in (tensors[0], *tensors[:2])]
        for parameters in ([alone], [first, second]):
            optimizer = getattr(optim, name)(parameters, **options)
            for factor in (1.0, -0.5):
                for p, grad in zip(parameters, tensors[2:], strict=False):
                    p.grad = grad.detach() * factor
                optimizer.step()
        return alone.detach(), first.detach(), second.detach()

    told = " ".join(key if value is True else f"{key}={value}" for key, value in options.items())
    return Case(f"{name} {told}".strip(), ((7, 5), (40,)) * 2, call, exact=True)


def _step_unscaled(device: str, dtype: Any, x: Any) -> Any:
    """A fused step, which divides the gradients by the scale itself."""
    p = nn.Parameter(x.detach().clone())
    optimizer = optim.AdamW([p], lr=0.1, fused=True)
    scaler = torch.amp.GradScaler(device.partition(":")[0], init_scale=4.0)
    scaler.scale(p.sum()).backward()
    scaler.step(optimizer)
    return p.detach()


def _captured(device: str, dtype: Any, x: Any) -> Any:
    """A third step of SGD, on a GPU as the replay of a CUDA graph: rows by index, a product, and sums in both gradients."""
    p = nn.Parameter(x.detach().clone())
    optimizer = optim.SGD([p], lr=0.1)
    rows = torch.tensor([2, 0, 2], device=device)

    def step() -> None:
        optimizer.zero_grad()
        (F.embedding(rows, p) @ p.mT).sum().backward()
        optimizer.step()

    step()
    step()
    if device == "cpu":
        step()
        return p.detach()
    with torch.cuda.device(device):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        graph.replay()
        torch.cuda.synchronize()
    return p.detach()


def _clipped(device: str, dtype: Any, *tensors: Any) -> Any:
    """Gradients of several parameters, scaled back, clipped, and the norm that they had."""
    parameters = [nn.Parameter(x.detach().clone()) for x in tensors]
    for p in parameters:
        p.grad = p.detach() * 4
    scaler = torch.amp.GradScaler(device.partition(":")[0], init_scale=4.0)
    scaler.scale(torch.ones((), device=device))
    if dtype is not torch.float16:  # which is refused, as by PyTorch
        scaler.unscale_(optim.SGD(parameters, lr=0.1))
    norm = nn.utils.clip_grad_norm_(parameters, 1.0)
    return (norm, *(p.grad for p in parameters))


def _cast(device: str, dtype: Any, *tensors: Any) -> Any:
    """What autocast makes of two parameters in a region that begins as an earlier one: on a GPU they are cast together."""
    parameters = [nn.Parameter(x.detach().float()) for x in tensors]
    found: list[Any] = []
    for _ in range(2):
        with torch.autocast(device.partition(":")[0], torch.bfloat16):
            found = [F.linear(torch.eye(p.shape[1], device=device), p) for p in parameters]
    return tuple(y.detach().to(dtype) for y in found)


def _draws(device: str, dtype: Any) -> Any:
    """Whether the mean and the deviation of what a device draws by itself are as they should be."""
    drawn = [f(1 << 16, device=device, dtype=dtype).double() for f in (torch.rand, torch.randn)]
    drawn.append(torch.randint(0, 1 << 20, (1 << 16,), device=device).double() / (1 << 20))
    moments = torch.stack([torch.stack([x.mean(), x.std()]) for x in drawn])
    expected = torch.tensor([[0.5, 12**-0.5], [0.0, 1.0], [0.5, 12**-0.5]], device=device)
    return (moments - expected).abs() < 0.02  # five deviations of the mean of 65,536 normal draws


def _attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _packed(x: Any) -> Any:
    """Attention between parts of one product, as of a model that projects to all three at once."""
    q, k, v = x.view(2, 9, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
    return _attention(q, k, v)


def _loss(target: Any, x: Any) -> Any:
    return F.cross_entropy(x, target, label_smoothing=0.1)


def _embedded(index: Any, table: Any) -> Any:
    return F.embedding(index, table)


def _put(index: Any, x: Any, values: Any) -> Any:
    return x.index_put((index,), values, accumulate=True)


def cases() -> Iterator[Case]:
    """All cases; together they launch every kernel of `backend/cuda`."""
    ops.load_all()
    yield _plain("elementwise", lambda x, y: torch.tanh(x * y + 1.5) / (2 - torch.sigmoid(y)), (5, 7), (7,))
    yield _plain("a number", lambda x: 2.5 - x * 0.3 + x / 0.7 + (x.abs() + 1) ** 1.5, (5, 7))
    yield _plain("sums", lambda x: (x.sum(), x.mean(1), x.amax(0), x.cumsum(1)), (9, 33))
    yield _plain("sums of columns", lambda x: (x.sum(0), x.sum((0, 1), keepdim=True)), (70, 3, 5))
    yield _plain("where", lambda x, y: torch.where(x > y, x, y), (5, 7), (5, 7))
    yield _plain("gelu", F.gelu, (5, 7))
    yield _plain("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), (5, 7))
    yield _plain("softmax", lambda x: F.softmax(x, -1), (5, 67))
    yield _plain("log_softmax", lambda x: F.log_softmax(x, -1), (5, 67))
    yield _plain("layer_norm", lambda x, w, b: F.layer_norm(x, (67,), w, b), (5, 67), (67,), (67,))
    yield _with_integers("cross_entropy", [1, -100, 6, 0, 3], _loss, (5, 7))
    yield _plain("dropout", lambda x: OPS["dropout"].call(x, 0.25, 2**63 + 7), (9, 33))  # one mask for a seed
    yield _with_integers("embedding", [[3, 1, 3], [0, 3, 1]], _embedded, (5, 6))
    yield _with_integers("index_put", [2, 0, 2], _put, (4, 3), (3, 3))
    for mode in ("sum", "prod", "amax", "amin"):
        yield _reduced(mode)
        yield _reduced_many(mode)
    yield _plain("linear", F.linear, (4, 5, 33), (7, 33), (7,))
    yield _plain("matmul", torch.matmul, (3, 5, 17), (17, 6))
    yield _plain("matmul stacked", lambda x, y: x.mT @ y.mT, (3, 17, 5), (3, 6, 17))
    yield _plain("attention", _attention, (2, 2, 9, 8), (2, 2, 9, 8), (2, 2, 9, 8))
    yield _plain("attention of parts", _packed, (2, 9, 48))
    yield _plain("attention, several tiles", _attention, (2, 70, 128), (2, 100, 128), (2, 100, 64))
    yield _plain("conv2d", lambda x, w, b: F.conv2d(x, w, b, 2, 1, 1, 2), (2, 4, 9, 8), (6, 2, 3, 3), (6,))
    yield _plain(
        "conv2d, many channels", lambda x, w: F.conv2d(x, w, None, 2, 1), (2, 16, 9, 8), (72, 16, 3, 3)
    )
    yield _plain("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (6, 4, 5), (4,), (4,))
    yield _plain("max_pool2d", lambda x: F.max_pool2d(x, 2), (2, 3, 6, 8))
    yield Case("unscale, clip", ((3000,), (7, 5), (1,)), _clipped, exact=True)
    yield Case("autocast of two parameters", ((7, 5), (9, 5)), _cast, exact=True)
    yield Case("draws", (), _draws, exact=True)
    yield Case("captured step", ((4, 5),), _captured, exact=True)
    yield _step("SGD")
    yield _step("SGD", momentum=0.9)
    yield _step("SGD", momentum=0.9, nesterov=True, weight_decay=0.1)
    yield _step("Adam", lr=0.1)
    yield _step("Adam", lr=0.1, amsgrad=True)
    yield _step("AdamW", lr=0.1)
    yield _step("AdamW", lr=0.1, capturable=True)
    for name in ("Adamax", "NAdam", "Adagrad", "Adadelta", "Rprop"):
        yield _step(name)
    yield _step("RAdam", betas=(0.9, 0.8))
    yield _step("RAdam", capturable=True)
    for options in ({}, {"momentum": 0.5}, {"centered": True}, {"centered": True, "momentum": 0.5}):
        yield _step("RMSprop", **options)
    yield _step("ASGD", t0=1)
    yield Case("AdamW fused, scaled", ((7, 5),), _step_unscaled, exact=True)
