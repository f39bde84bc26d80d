"""What a `TorchDispatchMode` is told of functions, with the arguments, against PyTorch."""

from typing import Any

import pytest
import torch

import ddpgrad
from ddpgrad.utils import _python_dispatch

# Over the library t, F, tensors x, y (2, 3), w (4, 3), b (4), v (3), z (2, 3, 4), img (2, 3, 5, 5), k (4, 3, 3, 3), a mask m, indices i.
CALLS = """
x + y; 1 + x; x - 1; 1 - x; x * 2; x / y; 2 / x; x // y; x % 2; x ** 2; x ** y; 2 ** x; -x; abs(x); x > 0; x == y; i & 1; ~m; m | m
t.add(x, y, alpha=2); t.div(x, y, rounding_mode="floor"); t.atan2(x, y); t.maximum(x, y); t.lerp(x, y, 0.5); t.where(m, x, y); t.where(m, x, 0.0); t.where(m)
x.masked_fill(m, 0.0); t.addcmul(x, y, y, value=2); x.exp(); x.square(); x.round(decimals=2); x.clamp(0, 1); x.clamp(max=y); x.erf(); t.special.entr(x)
x.sum(); x.sum(1); x.sum(-1, keepdim=True); x.sum(1, dtype=t.float64); x.mean(0, True); x.prod(1); x.std(1); x.var(1, unbiased=False); t.var_mean(x, 1); x.amax(1); x.argmax(1)
x.max(1); x.min(); x.any(); m.all(); x.cumsum(1); x.logsumexp(1); x.softmax(1); x.log_softmax(-1); x.sort(1, descending=True); t.sort(x, stable=True); x.topk(2); x.kthvalue(1); x.median(1)
x.unique(); x.nonzero(); x.t(); x.T; x.mT; z.permute(2, 0, 1); x.view(3, 2); x.reshape(6); x.t().reshape(6); z.flatten(1); x.expand(4, 2, 3); x.repeat(2, 1); x[None].squeeze(0)
x.t().contiguous(); x.clone(); x.detach(); x.data; x.double(); x.to(t.float32); x[0]; x[:, 1]; x[0, 1]; x[1:]; x[..., 0]; x[:, None]; x[::2]; x[m]; x[:, i[0]]; x[i[0, :2], 1:]
x.narrow(1, 0, 2); x.index_select(1, i[0]); x.gather(1, i); x.scatter(1, i, y); x.scatter(1, i, 1.0); x.scatter_add(1, i, y); x.index_fill(1, i[0], 0.0); x.masked_select(m)
t.cat([x, y], 1); t.stack([x, y]); x.split(2, 1); x.split([1, 2], 1); x.chunk(2, 1); x.unbind(1); list(x); x.flip(0); x.roll(1, 0); x.tril(); x.unfold(1, 2, 1); x.as_strided((2, 2), (1, 1))
x @ w.t(); x @ v; v @ v; z @ z.mT; z @ t.ones(4, 6); t.bmm(z, z.mT); t.addmm(b, x, w.t(), beta=2); F.linear(x, w); F.linear(x, w, b); F.linear(v, w, b); F.linear(x[None], w, b); F.linear(x[None], w)
F.relu(x); F.leaky_relu(x, 0.2); F.gelu(x, approximate="tanh"); F.silu(x); F.selu(x); F.glu(z); F.layer_norm(x, (3,), v, v); F.group_norm(img, 3); F.embedding(i, w, padding_idx=0)
F.conv2d(img, k, b, stride=2, padding=1); F.conv_transpose2d(img, k.transpose(0, 1)[:, :2]); F.max_pool2d(img, 2); F.pad(x, (1, 1)); F.unfold(img, 2); F.cross_entropy(x, i[:, 0]); F.mse_loss(x, y, reduction="sum")
F.binary_cross_entropy_with_logits(x, y); F.l1_loss(x, y); F.scaled_dot_product_attention(img, img, img, is_causal=True)
t.zeros(2, 3); t.empty((2,), dtype=t.int64); t.full((2,), 1.5); t.arange(1, 3); t.arange(1, 3, 2); t.randn(2, 3); t.randint(5, (2,)); t.randperm(3); t.tensor([1.0]); t.zeros_like(x); t.full_like(x, 2); x.new_zeros(2); x.new_full((2,), 1.0)
x.sum().item(); bool(x.sum() > 1); x.add_(1); x.add_(y, alpha=2); x.mul_(y); x.pow_(2); x.zero_(); x.fill_(2); x.copy_(y); x.normal_(); x.addcmul_(y, y); x.masked_fill_(m, 0.0); x.index_put_((i[:1, 0],), v)
x.scatter_(1, i, y); x.index_add_(0, i[:, 0], y); x.t_(); x.unsqueeze_(0); x.__setitem__(0, 1.0); x.__setitem__((slice(None), 1), 0); x.__setitem__(m, 0.0); t.add(x, y, out=t.empty(2, 3)); t.sum(x, 1, out=t.empty(2))
"""


def _shown(value: Any) -> str:
    if hasattr(value, "stride"):
        return f"T{tuple(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _told(library: Any, dispatch: Any, expression: str) -> list[str]:
    seen: list[str] = []

    class Log(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = [f"{name}={_shown(value)}" for name, value in (kwargs or {}).items()]
            seen.append(f"{func}({', '.join([*map(_shown, args), *named])})")
            return func(*args, **(kwargs or {}))

    def of(*shape: int) -> Any:
        return library.arange(1.0, 1 + library.empty(shape).numel()).view(shape) / 10

    scope = {
        "t": library, "F": library.nn.functional, "x": of(2, 3), "y": of(2, 3), "w": of(4, 3), "b": of(4), "v": of(3),
        "z": of(2, 3, 4), "img": of(2, 3, 5, 5), "k": of(4, 3, 3, 3), "m": of(2, 3) > 0.3,
        "i": library.tensor([[0, 1, 2], [1, 0, 1]]),
    }  # fmt: skip
    with Log():
        eval(expression, scope)
    return [line.replace("torch.", "") for line in seen]


@pytest.mark.parametrize("expression", [e.strip() for e in CALLS.replace("\n", ";").split(";") if e.strip()])
def test_a_mode_is_told_the_same(expression):
    expected = _told(torch, torch.utils._python_dispatch, expression)
    assert _told(ddpgrad, _python_dispatch, expression) == expected
