"""Attention: scaled dot-product attention, and multi-head attention with its projections."""

from __future__ import annotations

import math

from ... import (
    Tensor,
    broadcast_shapes,
    cat,
    expand,
    logical_and,
    mean,
    ones,
    permute,
    reshape,
    unsqueeze,
    zeros,
)
from ...backend.dtype import DType
from ...core.errors import warn_program
from ...ops.layers.attention import attention, require_mask, usual_scale
from ...ops.layers.dropout import dropout
from ...ops.linalg.matrix import linear
from ...ops.shape.shape import constant_pad


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key^T * scale) @ value over (..., T, D), (..., S, D), (..., S, E).

    attn_mask: bool (True takes part) or added to the scores. is_causal: position t sees
    positions up to t; with a mask too where there are four dimensions, no dropout and no gradient of the mask. dropout_p: probability of dropping an attention weight; applied
    whenever it is not 0, so pass 0 in evaluation. scale: 1/sqrt(D) by default. enable_gqa:
    key and value (..., heads, S, D) may have fewer heads, each shared by as many queries' ones.
    """
    if enable_gqa:
        key, value = _shared_heads(query, key), _shared_heads(query, value)
    if (
        is_causal
        and attn_mask is not None
        and query.ndim == 4
        and not dropout_p
        and not attn_mask.requires_grad
    ):
        attn_mask, is_causal = _causal(query, key, attn_mask), False  # else an error, as of PyTorch on a CPU
    if dropout_p == 0.0:
        return attention(query, key, value, attn_mask, is_causal, scale)
    if is_causal and attn_mask is not None:
        raise RuntimeError("scaled_dot_product_attention(): attn_mask and is_causal must not both be set")
    weights = _weights(query, key, attn_mask, is_causal, scale)
    return dropout(weights, dropout_p) @ value


def _causal(query: Tensor, key: Tensor, attn_mask: Tensor) -> Tensor:
    """`attn_mask` (..., T, S) that also hides from position t what comes after it."""
    sees = ones((query.shape[-2], key.shape[-2]), dtype=bool, device=query.device).tril()
    if attn_mask.dtype.category == 0:
        return logical_and(attn_mask, sees)
    return expand(attn_mask, broadcast_shapes(attn_mask.shape, sees.shape)).masked_fill(~sees, -math.inf)


def _shared_heads(query: Tensor, shared: Tensor) -> Tensor:
    """`shared` (..., few, S, D) with each head repeated, to stand beside query (..., heads, T, D)."""
    if query.ndim < 3 or shared.ndim < 3 or not shared.shape[-3] or query.shape[-3] % shared.shape[-3]:
        raise RuntimeError(
            "scaled_dot_product_attention(): Number of heads in key and value must divide the number of heads in query, got "
            f"{list(shared.shape)} and {list(query.shape)}"
        )
    few, *rest = shared.shape[-3:]
    times = query.shape[-3] // few
    if times == 1:
        return shared
    lead = tuple(shared.shape[:-3])
    spread = expand(unsqueeze(shared, -3), *lead, few, times, *rest)
    return reshape(spread, (*lead, few * times, *rest))


def _weights(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float | None
) -> Tensor:
    """softmax of the scaled and masked scores (..., T, S); a row that sees nothing is nan, as in PyTorch."""
    scores = query * (usual_scale(query) if scale is None else scale) @ key.transpose(-2, -1)
    if is_causal:
        attn_mask = ones(tuple(scores.shape[-2:]), dtype=bool, device=query.device).tril()
    if attn_mask is not None:
        require_mask(query, key, attn_mask)
        hides = attn_mask.dtype.category == 0
        scores = scores.masked_fill(~attn_mask, -math.inf) if hides else scores + attn_mask
    return scores.softmax(-1)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of `num_heads` projections of query (L, N, E), key (S, N, *) and value (S, N, *), projected back.

    Without N for one sequence. in_proj_weight (3E, E): the projections of all three, unless
    use_separate_proj_weight. bias_k, bias_v (1, 1, E) and add_zero_attn: one more key and value
    each. static_k, static_v (N * heads, S, E / heads): in place of the projected ones.
    key_padding_mask (N, S), attn_mask (L, S) or (N * heads, L, S): True, or what is added to the
    scores, hides. is_causal: a hint that attn_mask is the causal one. Returns (output, weights),
    weights (N, L, S) averaged over the heads or (N, heads, L, S), None unless need_weights.
    Source: https://arxiv.org/abs/1706.03762
    """
    batched = _mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads)
    same = query is key and key is value
    if not batched:
        query = query.unsqueeze(1)
        key, value = (query, query) if same else (key.unsqueeze(1), value.unsqueeze(1))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, count, width = query.shape
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    if width % num_heads:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    # The hint is taken where the kernel needs no other mask: without it, nothing is hidden but the future.
    causal = is_causal and key_padding_mask is None and not need_weights
    if causal:
        attn_mask = None

    if use_separate_proj_weight:
        biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = _in_projection(query, key, value, *weights, *biases)  # type: ignore[arg-type]
    else:
        assert in_proj_weight is not None
        if key.shape != value.shape:
            raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
        q, k, v = _in_projection_packed(query, key, value, in_proj_weight, in_proj_bias)

    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("bias cannot be added to static key or value.")
        if not bias_k.numel() == bias_v.numel() == width:
            raise RuntimeError(
                f"bias_k and bias_v should have {width} elements, but are of shapes {list(bias_k.shape)} and {list(bias_v.shape)}"
            )
        k = cat([k, expand(bias_k, 1, count, width)])
        v = cat([v, expand(bias_v, 1, count, width)])
        attn_mask, key_padding_mask = _one_wider(attn_mask), _one_wider(key_padding_mask)
    if static_k is None and k.shape[1] != count:
        raise RuntimeError(f"query has a batch of {count}, key and value one of {k.shape[1]}")
    q, k, v = _heads(q, num_heads), _heads(k, num_heads), _heads(v, num_heads)
    if static_k is not None:
        k = reshape(static_k, (count, num_heads, *static_k.shape[1:]))
    if static_v is not None:
        v = reshape(static_v, (count, num_heads, *static_v.shape[1:]))
    if add_zero_attn:
        nothing = zeros((count, num_heads, 1, width // num_heads), dtype=k.dtype, device=k.device)
        k, v = cat([k, nothing], 2), cat([v, nothing], 2)
        attn_mask, key_padding_mask = _one_wider(attn_mask), _one_wider(key_padding_mask)

    mask = _merged(attn_mask, key_padding_mask, (count, num_heads, length, k.shape[2]), q)
    dropout_p = dropout_p if training else 0.0
    seen = None
    if need_weights:
        seen = dropout(_weights(q, k, mask, False, None), dropout_p)
        out = seen @ v
    else:
        out = scaled_dot_product_attention(q, k, v, mask, dropout_p, causal)
    out = linear(reshape(permute(out, 2, 0, 1, 3), (length, count, width)), out_proj_weight, out_proj_bias)
    if seen is not None and average_attn_weights:
        seen = mean(seen, 1)
    if batched:
        return out, seen
    return out.squeeze(1), None if seen is None else seen.squeeze(0)


def _in_projection_packed(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None
) -> list[Tensor]:
    """The projections of all three by the weights of all, (3E, E): in one product where they are one tensor."""
    if q is k and k is v:
        return list(reshape(linear(q, w, b), (*q.shape[:-1], 3, q.shape[-1])).unbind(-2))
    biases = (None, None, None) if b is None else b.chunk(3)
    return list(_in_projection(q, k, v, *w.chunk(3), *biases))


def _in_projection(
    q: Tensor, k: Tensor, v: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor,
    b_q: Tensor | None = None, b_k: Tensor | None = None, b_v: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The projections of all three, each by its own weights."""
    return linear(q, w_q, b_q), linear(k, w_k, b_k), linear(v, w_v, b_v)


def _mha_shape_check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    num_heads: int,
) -> bool:
    """Whether there is a batch dimension; an error where the others do not fit."""
    if query.ndim not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor"
        )
    kind = "batched (3-D)" if query.ndim == 3 else "unbatched (2-D)"
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {query.ndim}-D but found {key.ndim}-D and "
            f"{value.ndim}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.ndim != query.ndim - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {query.ndim - 1}-D but found "
            f"{key_padding_mask.ndim}-D tensor instead"
        )
    if key.shape[:-1] != value.shape[:-1]:
        raise AssertionError(
            f"key's sequence and batch dims {key.shape[:-1]} do not match value's {value.shape[:-1]}"
        )
    for name, mask in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
        if mask is not None and mask.dtype.category not in (0, 2):
            raise AssertionError(f"only bool and floating types of {name} are supported, got {mask.dtype}")
    if attn_mask is not None:
        if attn_mask.ndim not in (2, 3):
            raise AssertionError(
                f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.ndim}-D"
            )
        expected: tuple[int, ...] = (query.shape[0], key.shape[0])
        if attn_mask.ndim == 3:
            expected = ((query.shape[1] if query.ndim == 3 else 1) * num_heads, *expected)
        if tuple(attn_mask.shape) != expected:
            raise RuntimeError(
                f"The shape of the {attn_mask.ndim}D attn_mask is {tuple(attn_mask.shape)}, but should be {expected}."
            )
    return query.ndim == 3


def _one_wider(mask: Tensor | None) -> Tensor | None:
    """The mask with a last column that hides nothing."""
    return None if mask is None else constant_pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, 1)], 0)


def _heads(x: Tensor, heads: int) -> Tensor:
    """(S, N, E) as (N, heads, S, E / heads)."""
    return permute(reshape(x, (x.shape[0], x.shape[1], heads, x.shape[2] // heads)), 1, 2, 0, 3)


def _none_or_dtype(input: Tensor | None) -> DType | None:
    """The dtype of a mask, if there is one."""
    return None if input is None else input.dtype


def _canonical_mask(
    mask: Tensor | None,
    mask_name: str,
    other_type: DType | None,
    other_name: str,
    target_type: DType,
    check_other: bool = True,
) -> Tensor | None:
    """`mask` as what is added to scores of `target_type`; AssertionError for integers, a warning where another mask's dtype differs."""
    if mask is None:
        return None
    if mask.dtype.category not in (0, 2):
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type not in (None, mask.dtype):
        warn_program(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead."
        )
    return _added(mask, target_type)


def _added(mask: Tensor, dtype: DType) -> Tensor:
    """-inf where a bool mask is True; another mask as it is."""
    if mask.dtype.category:
        return mask
    return zeros(tuple(mask.shape), dtype=dtype, device=mask.device).masked_fill(mask, -math.inf)


def _merged(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, shape: tuple[int, int, int, int], like: Tensor
) -> Tensor | None:
    """Both masks as one over scores of `shape` (N, heads, L, S): bool, True where seen, or added."""
    count, heads, length, width = shape
    masks = []
    if attn_mask is not None:
        if attn_mask.ndim == 3:
            attn_mask = reshape(attn_mask, (count, heads, length, width))
        masks.append(attn_mask)
    if key_padding_mask is not None:
        if tuple(key_padding_mask.shape) != (count, width):
            raise AssertionError(
                f"expecting key_padding_mask shape of {(count, width)}, but got {tuple(key_padding_mask.shape)}"
            )
        masks.append(reshape(key_padding_mask, (count, 1, 1, width)))
    if not masks:
        return None
    if all(mask.dtype.category == 0 for mask in masks):
        return ~masks[0] if len(masks) == 1 else logical_and(~masks[0], ~masks[1])
    added = [_added(mask, like.dtype).to(like.dtype) for mask in masks]
    return added[0] if len(added) == 1 else added[0] + added[1]
