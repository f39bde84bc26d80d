"""What PyTorch returns of tensors of a subclass, and what it asks their `__torch_function__`, against ddpgrad."""

import copy
import pickle
from typing import Any

import pytest
import torch

import ddpgrad


class Kept(torch.Tensor):
    pass


class KeptHere(ddpgrad.Tensor):
    pass


KINDS = {torch: Kept, ddpgrad: KeptHere}


def asking(library: Any) -> Any:
    """A subclass that writes down the names of the functions that it is asked about."""

    class Asking(library.Tensor):
        seen: list[Any] = []  # noqa: RUF012

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs)

    return Asking


# Expressions over the library t, a tensor x of a subclass, a plain tensor p, and F.
KEEPING = """
x + 1; 1 + x; 1 - x; p - x; x - p; 2 / x; x ** 2; 2 ** x; x % 2; x // 2; 5 // x; -x; abs(x); ~(x > 1); p == x; p < x; x != p
p @ x.t(); x @ p.t(); t.add(p, x); t.add(x, 1, alpha=2); t.sub(p, x); t.div(x, 2, rounding_mode="floor"); t.pow(p, x); t.exp(x); t.clamp(x, 0, 1)
t.where(p > 0, x, p); t.lerp(p, x, 0.5); t.addcmul(p, x, p); t.addmm(p, p @ p.t(), x); t.einsum("ij,kj->ik", p, x); t.baddbmm(x[None], p[None] @ p[None].mT, p[None])
x.sum(); t.sum(x, dim=1); x.mean(0); t.std(x); t.var_mean(x, 0); x.max(1); t.max(x, dim=1); x.aminmax(); t.topk(x, 2); x.sort(); x.cumsum(0); x.norm(); t.linalg.norm(x); t.all(x > 0)
t.linalg.svd(x); t.linalg.inv(x[:, :2]); t.fft.fft(x); t.special.expit(x); x.unique(); t.unique(x, return_counts=True); x.nonzero(); t.nonzero(x); t.equal(x, x); t.allclose(x, p)
x[0]; x[:, 1]; x[x > 1]; x[t.tensor([0, 1])]; p[t.tensor([0, 1]).as_subclass(type(x))]; list(x); t.unbind(x); x.split(1); t.chunk(x, 2); t.stack([p, x]); t.cat([x, x]); t.broadcast_tensors(x, p); t.meshgrid(x[0], x[0], indexing="ij")
x.T; x.mT; x.data; x.grad; x.real; x.shape; x.size(); x.ndim; x.requires_grad; x.device.type; x.is_leaf; x.view(-1); x.reshape(3, 2); t.flatten(x); x.permute(1, 0); x.expand(4, 2, 3); x[None].squeeze(0)
x.clone(); x.detach(); t.detach(x); x.to(t.float64); x.double(); x.half(); x.type(t.float64); x.cpu(); x.contiguous(); x.requires_grad_(); t.as_tensor(x); t.tensor(x); x.numpy(); x.tolist(); x.sum().item()
x.new_zeros(3); x.new_tensor([1.0]); x.new([1.0]); t.zeros_like(x); t.rand_like(x); t.full_like(x, 2); t.empty_like(x); t.normal(x, x); t.bernoulli(x * 0); x.clone().normal_()
t.add(x, 1, out=t.empty(2, 3)); t.add(p, 1, out=x.clone()); t.exp(x, out=t.empty(2, 3)); x.clone().add_(1); p.clone().add_(x); x.clone().zero_(); t.relu_(x.clone()); t.nn.init.ones_(x.clone())
F.relu(x); F.gelu(x); F.softmax(x, -1); F.log_softmax(x, -1); F.dropout(x); F.linear(p, x); F.linear(x, p); F.layer_norm(x, (3,)); F.normalize(x); F.pad(x, (1, 1)); F.one_hot(x.long()); F.embedding(t.tensor([0]), x)
F.cross_entropy(x, t.tensor([0, 1])); F.mse_loss(x, p); F.l1_loss(p, x); F.binary_cross_entropy_with_logits(x, p); F.kl_div(x, p); F.cosine_similarity(x, p); F.interpolate(x[None], size=6); F.conv1d(x[None], t.ones(1, 2, 1))
F.max_pool2d(x[None], 1); F.avg_pool1d(x, 1); F.scaled_dot_product_attention(x[None], x[None], p[None]); F.batch_norm(x, None, None, training=True); F.grid_sample(x[None, None], t.zeros(1, 1, 1, 2), align_corners=False)
t.nn.Linear(3, 2)(x); t.nn.LSTM(3, 2)(x)[0]; t.nn.MultiheadAttention(3, 1)(x, x, x)[0]; t.nn.Sequential(t.nn.ReLU(), t.nn.Dropout(), t.nn.BatchNorm1d(3))(x); t.nn.MSELoss()(x, p); t.nn.Embedding(9, 2)(x.long())
copy.copy(x); pickle.loads(pickle.dumps(x)); t.nn.Parameter(x); isinstance(t.nn.Parameter(x), t.nn.Parameter); isinstance(x, t.nn.Parameter); t.nn.Parameter(p) + 1; t.nn.Parameter(p) + x; repr(t.nn.Parameter(x[0]))
t.autograd.grad(x.requires_grad_().sum(), x); x.requires_grad_().sum().backward() or x.grad; t.utils.data.default_collate([{"a": x}, {"a": x}]); (x.requires_grad_() * 2).grad_fn.name(); repr(x[0] * 2); bool(x.sum() > 0)
t.overrides.has_torch_function((p, x)); t.overrides.has_torch_function_unary(p); t.overrides.is_tensor_like(x); t.overrides.resolve_name(t.add); t.overrides.resolve_name(t.Tensor.shape.__get__); t.add == t.Tensor.add
"""
EXPRESSIONS = [part.strip() for part in KEEPING.replace("\n", ";").split(";") if part.strip()]


def told(value: Any) -> Any:
    """The name of the class of a tensor, or of those in a list; other values as they are."""
    if isinstance(value, (torch.Tensor, ddpgrad.Tensor)):
        return type(value).__name__.removesuffix("Here"), tuple(value.shape)
    if isinstance(value, (tuple, list)) and not hasattr(value, "numel"):
        return [told(part) for part in value]
    if isinstance(value, dict):
        return {key: told(part) for key, part in value.items()}
    return value.replace("KeptHere", "Kept") if isinstance(value, str) else value


def computed(library: Any, expression: str, kind: Any) -> Any:
    plain = library.arange(1.0, 7.0).reshape(2, 3)
    names = {"t": library, "F": library.nn.functional, "p": plain, "x": plain.clone().as_subclass(kind)}
    return told(eval(expression, {"copy": copy, "pickle": pickle}, names))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_class_of_a_result(expression: str) -> None:
    if expression == "x.numpy()":
        assert type(computed(ddpgrad, expression, KeptHere)) is type(computed(torch, expression, Kept))
        return
    assert computed(ddpgrad, expression, KeptHere) == computed(torch, expression, Kept)


ASKED = """
x + 1; 1 + x; p + x; t.add(p, x); x.add(1); x.add_(1); p.add_(x); x += 1; x @ p.t(); p @ x.t(); x == p; t.exp(x); t.sum(x, dim=1); x.sum(1, keepdim=True); x.float(); x.to(t.float64); x.view(3, 2); t.reshape(x, (3, 2))
x[0]; x[0] = 1; x.shape; x.requires_grad = False; x.T; len(x); repr(x); t.stack([x, p]); t.cat((x, x), 1); t.unbind(x); x.unbind(); t.max(x, 1); x.max(dim=1); t.zeros_like(x); x.new_zeros(2); x.clone(); x.detach()
F.layer_norm(x, (3,)); F.cross_entropy(x, t.tensor([0, 1])); F.dropout(x, 0.5); F.mse_loss(x, p); t.nn.Linear(3, 2)(x); t.nn.MSELoss()(x, p); F.linear(p, x); F.softmax(x, dim=1); F.conv2d(x, t.ones(1, 1, 1, 1)); t.einsum("ij->i", x)
"""
STATEMENTS = [part.strip() for part in ASKED.replace("\n", ";").split(";") if part.strip()]


def asked(library: Any, statement: str) -> Any:
    kind = asking(library)
    plain = library.arange(1.0, 7.0).reshape(2, 3)
    shaped = plain.reshape(1, 1, 2, 3) if "conv2d" in statement else plain
    names = {"t": library, "F": library.nn.functional, "p": plain, "x": shaped.clone().as_subclass(kind)}
    exec(statement, {}, names)
    return kind.seen


@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_a_class_is_asked(statement: str) -> None:
    assert asked(ddpgrad, statement) == asked(torch, statement)
