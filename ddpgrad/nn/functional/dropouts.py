"""Dropout of whole channels, and for self-normalising networks."""

from __future__ import annotations

import math

from ... import Tensor, ne, ones, zeros_like
from ...core.errors import warn_program
from ...ops.dispatch.dtype_lists import refuse_dtypes
from ...ops.dispatch.inplace import inplace_function
from ...ops.dispatch.vocabulary import VOCABULARY as F
from ...ops.layers.dropout import dropout, skipped

# What a dropped element becomes: the limit of selu at minus infinity (https://arxiv.org/abs/1706.02515).
_ALPHA = 1.7580993408473766


def _channel_mask(input: Tensor, p: float) -> Tensor:
    """(N, C, 1, …): 0 with probability `p`, else 1 / (1 - p)."""
    if input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return dropout(ones(shape, dtype=input.dtype, device=input.device), p)


def _by_channel(input: Tensor, p: float) -> Tensor:
    mask = _channel_mask(input, p).flatten()
    return _affine(input, mask, zeros_like(mask))


def _affine(input: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """input (N, C, *) times scale (N * C,) plus shift: the channels of all images are those of one, which has a kernel."""
    channels = input.reshape((1, scale.numel(), math.prod(input.shape[2:])))
    return F.channel_affine(channels, scale, shift).view(input.shape)


_by_channel_ = inplace_function("dropout", _by_channel)


def channels(input: Tensor, p: float, training: bool, inplace: bool, unbatched: int) -> Tensor:
    """Dropout of channels, which are dimension 0 of inputs of `unbatched` dimensions, else dimension 1."""
    if skipped(p, training) or not input.numel():
        return input  # and nothing is drawn
    refuse_dtypes("feature_dropout", "bic", (input,))
    drop = _by_channel_ if inplace else _by_channel
    if input.ndim != unbatched:
        return drop(input, p)
    dropped = drop(input.unsqueeze(0), p)
    return input if inplace else dropped.squeeze(0)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of (N, C, L) or (C, L)."""
    if input.ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input. Note that dropout1d exists to "
            "provide channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an optional "
            "batch dimension (i.e. 2D or 3D inputs)."
        )
    return channels(input, p, training, inplace, 2)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of (N, C, H, W); (N, C, L) is taken for a batch too."""
    if input.ndim not in (3, 4):
        warn_program(
            f"dropout2d: Received a {input.ndim}-D input to dropout2d, which is deprecated and will result in an "
            "error in a future release. Channels are taken to be dimension 1."
        )
    return channels(input, p, training, inplace, -1)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    return channels(input, p, training, inplace, 4)


def _alpha_scale(p: float) -> float:
    """What keeps the variance where elements are dropped with probability `p`."""
    return 1 / math.sqrt((_ALPHA**2 * p + 1) * (1 - p)) if p < 1 else 0.0


def _alpha_form(input: Tensor, kept: Tensor, p: float) -> Tensor:
    """Dropped elements at -alpha, then all scaled and shifted so that mean and variance stay."""
    scale = _alpha_scale(p)
    return input * (kept * scale) + ((kept - 1) * (_ALPHA * scale) + _ALPHA * scale * p)


_alpha_form_ = inplace_function("alpha_dropout", _alpha_form)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps the mean and the variance of what `selu` gives (https://arxiv.org/abs/1706.02515)."""
    if skipped(p, training):
        return input
    kept = dropout(ones(tuple(input.shape), dtype=input.dtype, device=input.device), p)
    return (_alpha_form_ if inplace else _alpha_form)(input, ne(kept, 0).to(input.dtype), p)


def _alpha_channels(input: Tensor, p: float) -> Tensor:
    """`_alpha_form` of channels."""
    kept = ne(_channel_mask(input, p).flatten(), 0).to(input.dtype)
    scale = _alpha_scale(p)
    shift = (kept - 1) * (_ALPHA * scale) + _ALPHA * scale * p
    return _affine(input, kept * scale, shift)


_alpha_channels_ = inplace_function("alpha_dropout", _alpha_channels)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels (dimension 1)."""
    if skipped(p, training) or not input.numel():
        return input
    refuse_dtypes("feature_alpha_dropout", "bic", (input,))
    return (_alpha_channels_ if inplace else _alpha_channels)(input, p)
