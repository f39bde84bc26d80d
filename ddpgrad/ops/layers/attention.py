"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backend.dtype import bool_, float32
from ...core.tensor import Tensor
from ..dispatch.declare import composite, op


def _adapt(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Any, ...]:
    if min(query.ndim, key.ndim, value.ndim) < 2 or not query.dtype is key.dtype is value.dtype:
        raise RuntimeError(
            "Expected query, key, and value to all be at least 2 dimensional and to have the same dtype, but got "
            + ", ".join(f"{list(t.shape)} {t.dtype.name}" for t in (query, key, value))
        )
    ndim = max(query.ndim, key.ndim, value.ndim)
    query, key, value = (
        t if t.ndim == ndim else t[(None,) * (ndim - t.ndim)] for t in (query, key, value)
    )  # the leading dimensions are broadcast
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            f"scaled_dot_product_attention(): query {list(query.shape)} and key {list(key.shape)} must agree in the "
            f"last dimension, key and value {list(value.shape)} in the last but one"
        )
    if attn_mask is not None:
        if is_causal:
            raise RuntimeError("scaled_dot_product_attention(): attn_mask and is_causal must not both be set")
        require_mask(query, key, attn_mask)
    if scale is None:
        scale = usual_scale(query)
    return query, key, value, attn_mask, is_causal, float(scale)


def usual_scale(query: Tensor) -> float:
    return 1.0 / math.sqrt(query.shape[-1] or 1)  # with no features all scores are 0


def require_mask(query: Tensor, key: Tensor, mask: Tensor) -> None:
    """`RuntimeError` for a mask that could be added to the scores by promoting or enlarging them only."""
    if mask.dtype not in (bool_, float32, query.dtype):
        raise RuntimeError(
            f"scaled_dot_product_attention(): expected attn_mask of dtype bool, float32 or query's, {query.dtype.name}, but got "
            f"{mask.dtype.name}; a mask of zeros and ones is one by .bool()"
        )
    lead = np.broadcast_shapes(tuple(query.shape[:-2]), tuple(key.shape[:-2]))
    scores = (*lead, query.shape[-2], key.shape[-2])
    if mask.ndim > len(scores) or any(
        m not in (1, n) for m, n in zip(mask.shape[::-1], scores[::-1], strict=False)
    ):
        raise RuntimeError(
            f"scaled_dot_product_attention(): attn_mask {list(mask.shape)} does not broadcast to the scores {list(scores)}"
        )


def _probabilities(F: Any, query: Any, key: Any, attn_mask: Any, is_causal: bool, scale: float) -> Any:
    """softmax of the scaled scores (..., T, S); masked places get 0."""
    n = len(key.shape)
    scores = F.matmul(query, F.transpose(key, n - 2, n - 1)) * scale
    if is_causal:
        # Made of the scores' own kind, so that it lies on their device.
        future = F.triu(F.new_zeros(scores, tuple(scores.shape[-2:])) + 1, 1) != 0
        scores = F.where(future, F.full_like(scores, -math.inf), scores)
    elif attn_mask is not None:
        if attn_mask.dtype in (np.bool_, bool_):
            scores = F.where(attn_mask, scores, F.full_like(scores, -math.inf))
        else:
            scores = scores + attn_mask
        # A query that sees nothing gets 0, not the nan of a softmax over nothing; a nan in the data stays.
        seen = F.amax(scores, len(scores.shape) - 1, True) != -math.inf
        finite = F.where(seen, scores, F.full_like(scores, 0))
        return F.where(seen, F.softmax(finite, len(scores.shape) - 1), F.full_like(scores, 0))
    return F.softmax(scores, len(scores.shape) - 1)


def _reference(
    q: Any, k: Any, v: Any, attn_mask: Any = None, is_causal: bool = False, scale: float | None = None
) -> Any:
    s = q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    elif attn_mask is not None:
        s = np.where(attn_mask, s, -np.inf) if attn_mask.dtype == bool else s + attn_mask
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def _samples(rng: Any) -> Any:
    q, k, v = rng.standard_normal((3, 2, 2, 5, 4))
    yield (q, k, v), {"is_causal": True}
    yield (q, k, v), {"scale": 0.3}
    yield (q[..., :3, :], k, v), {"attn_mask": rng.random((3, 5)) > 0.2}
    yield (q, k, v), {"attn_mask": rng.standard_normal((5, 5))}


@op(
    joint=lambda F, g, needs, query, key, value, attn_mask, is_causal, scale, out, lse: (
        *F.attention_backward(g, query, key, value, attn_mask, is_causal, scale, out, lse),
        _mask_gradient(F, g, needs, query, key, value, attn_mask, is_causal, scale),
    ),
    extras=("lse",),
    adapt=_adapt,
    samples=_samples,
    reference=_reference,
    method=False,
    grad_name="ScaledDotProductAttentionBackward0",
)
def attention(
    F: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query @ key^T * scale) @ value over (..., T, D), (..., S, D), (..., S, E).

    attn_mask: bool (True takes part) or added to the scores; is_causal: position t sees
    positions up to t.
    """
    return F.matmul(_probabilities(F, query, key, attn_mask, is_causal, scale), value), None  # type: ignore


@composite
def attention_backward(
    F: Any,
    g: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    is_causal: bool,
    scale: float,
    out: Any,
    lse: Any,
) -> tuple[Any, Any, Any]:
    """The gradients of `attention` for query, key and value."""
    n = len(query.shape)
    p = _probabilities(F, query, key, attn_mask, is_causal, scale)
    grad_value = F.matmul(F.transpose(p, n - 2, n - 1), g)
    grad_scores = F.softmax_backward(F.matmul(g, F.transpose(value, n - 2, n - 1)), p, n - 1) * scale
    grad_query = F.matmul(grad_scores, key)
    grad_key = F.matmul(F.transpose(grad_scores, n - 2, n - 1), query)
    return grad_query, grad_key, grad_value


def _mask_gradient(
    F: Any,
    g: Any,
    needs: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    is_causal: bool,
    scale: float,
) -> Any:
    """An added mask that is learned (a position bias) gets the gradient of the scores."""
    if not needs[3]:
        return None
    n = len(query.shape)
    p = _probabilities(F, query, key, attn_mask, is_causal, scale)
    return F.softmax_backward(F.matmul(g, F.transpose(value, n - 2, n - 1)), p, n - 1)
