"""Short-time Fourier transforms."""

from __future__ import annotations

import numpy as np

from ...backend.registry import backend_for, to_device
from ...core.tensor import Tensor, wrap
from ..dispatch.tensor_function import tensor_function
from ..dispatch.vocabulary import VOCABULARY as F
from ..shape import shape
from .fourier import fft_fft, fft_ifft, fft_irfft, fft_rfft


def _indices(like: Tensor, values: np.ndarray) -> Tensor:
    return wrap(to_device(values, like.device))


def _ones(like: Tensor, size: int) -> Tensor:
    return wrap(backend_for(like._array).full((size,), 1, like.dtype)).to(like.device)


def _centred(window: Tensor, n_fft: int) -> Tensor:
    """`window` with zeros on both sides, up to the length of a transform."""
    left = (n_fft - window.shape[0]) // 2
    right = n_fft - window.shape[0] - left
    return F.constant_pad(window, [(left, right)], 0.0) if n_fft != window.shape[0] else window


def _padded(input: Tensor, amount: int, mode: str) -> Tensor:
    """`amount` elements more at both ends of the last dimension."""
    n = input.shape[-1]
    if mode == "constant":
        return F.constant_pad(input, [(0, 0)] * (input.ndim - 1) + [(amount, amount)], 0.0)
    names = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in names:
        raise RuntimeError(f"stft(): pad_mode must be one of constant, {', '.join(names)}, got '{mode}'")
    if mode == "reflect" and amount >= n:
        raise RuntimeError(
            f"stft(): Padding size should be less than the corresponding input dimension, but got: padding "
            f"({amount}, {amount}) at dimension {input.ndim - 1} of input {list(input.shape)}"
        )
    order = np.pad(np.arange(n), amount, mode=names[mode])  # type: ignore[call-overload]
    return F.index_select(input, input.ndim - 1, _indices(input, order))


def _resolved_window(name: str, window: Tensor | None, win_length: int, n_fft: int, like: Tensor) -> Tensor:
    if not 0 < win_length <= n_fft:
        raise RuntimeError(f"{name}(): expected 0 < win_length <= n_fft, but got win_length={win_length}")
    if window is None:
        return _centred(_ones(like, win_length), n_fft)
    if window.ndim != 1 or window.shape[0] != win_length:
        raise RuntimeError(
            f"{name}(): expected a 1D window tensor of size equal to win_length={win_length}, but got window with "
            f"size {list(window.shape)}"
        )
    return _centred(window, n_fft)


@tensor_function()
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The transforms of windowed frames, `hop_length` apart, of signals (time) or (batch, time).

    Returns (batch, frequencies, frames), complex, or without `return_complex` with real and
    imaginary parts in a last dimension of 2.
    """
    is_complex = input.dtype.is_complex or (window is not None and window.dtype.is_complex)
    if return_complex is None:
        if not is_complex:
            raise RuntimeError("stft requires the return_complex parameter be given for real inputs")
        return_complex = True
    if align_to_window is not None and center:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    if not input.dtype.is_complex and not input.dtype.is_floating_point:
        raise RuntimeError(
            f"stft(): expected a tensor of floating point or complex values, got {input.dtype.name}"
        )
    if input.ndim not in (1, 2):
        raise RuntimeError(f"stft(): expected a 1D or 2D tensor, got {list(input.shape)}")
    hop = n_fft // 4 if hop_length is None else hop_length
    if hop <= 0:
        raise RuntimeError(f"stft(): expected hop_length > 0, but got hop_length={hop}")
    signal = input if input.ndim == 2 else shape.unsqueeze(input, 0)
    length = n_fft if win_length is None else win_length
    taper = _resolved_window("stft", window, length, n_fft, input)
    if center:
        signal = _padded(signal, n_fft // 2, pad_mode)
    elif align_to_window:
        taper_start = (n_fft - length) // 2
        signal = F.constant_pad(signal, [(0, 0), (taper_start, n_fft - length - taper_start)], 0.0)
    total = signal.shape[-1]
    if not 0 < n_fft <= total:
        raise RuntimeError(f"stft(): expected 0 < n_fft <= {total}, but got n_fft={n_fft}")
    frames = F.unfold(signal, 1, n_fft, hop) * taper
    half = not frames.dtype.is_complex if onesided is None else onesided
    if half and frames.dtype.is_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    out = (fft_rfft if half else fft_fft)(frames, norm="ortho" if normalized else None)
    out = shape.transpose(out, 1, 2)
    out = out if input.ndim == 2 else shape.squeeze(out, 0)
    return out if return_complex else F.view_as_real(out)


@tensor_function()
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signals (batch, time) whose `stft` (batch, frequencies, frames) is nearest to `input`.

    Griffin and Lim, "Signal estimation from modified short-time Fourier transform", 1984.
    """
    if not input.dtype.is_complex:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    if input.ndim not in (2, 3):
        raise RuntimeError(f"istft(): expected a tensor with 2 or 3 dimensions, got {list(input.shape)}")
    spectrum = input if input.ndim == 3 else shape.unsqueeze(input, 0)
    batch, frequencies, count = spectrum.shape
    half = frequencies != n_fft if onesided is None else onesided
    if frequencies != (n_fft // 2 + 1 if half else n_fft):
        raise RuntimeError(
            f"istft(): expected the frequency dimension (3rd to the last) of the input tensor to match n_fft / 2 + 1 "
            f"when onesided=True and n_fft otherwise, but got {frequencies} for n_fft={n_fft}"
        )
    if return_complex and half:
        raise RuntimeError("cannot have onesided output if window or input is complex")
    hop = n_fft // 4 if hop_length is None else hop_length
    size = n_fft if win_length is None else win_length
    if not 0 < hop <= size:
        raise RuntimeError(f"istft(): expected 0 < hop_length <= win_length, got {hop} and {size}")
    spectrum = shape.transpose(spectrum, 1, 2)
    norm = "ortho" if normalized else None
    if return_complex:
        frames = fft_ifft(spectrum, norm=norm)
    else:
        frames = fft_irfft(shape.narrow(spectrum, -1, 0, n_fft // 2 + 1), n_fft, norm=norm)
    taper = _resolved_window("istft", window, size, n_fft, F.real(input) if not return_complex else input)
    total = n_fft + hop * (count - 1)
    places = (np.arange(count)[:, None] * hop + np.arange(n_fft)).reshape(-1)
    index = shape.expand(_indices(input, places[None]), batch, len(places))
    weighted = shape.reshape(frames * taper, (batch, -1))
    signal = F.scatter_add(F.new_zeros(weighted, (batch, total)), 1, index, weighted)
    squares = shape.reshape(shape.expand(taper * taper, count, n_fft), (1, -1))
    envelope = F.scatter_add(F.new_zeros(squares, (1, total)), 1, index[:1], squares)
    start = n_fft // 2 if center else 0
    if length is not None:
        end = start + length
    else:
        end = total - n_fft // 2 if center else total
    kept = min(end, total) - start
    signal, envelope = shape.narrow(signal, 1, start, kept), shape.narrow(envelope, 1, start, kept)
    if bool((F.abs(envelope) < 1e-11).any()):
        raise RuntimeError(
            "istft(): window overlap add min: 1; the window is zero somewhere that no frame covers"
        )
    signal = signal / envelope
    if end > total:
        signal = F.constant_pad(signal, [(0, 0), (0, end - total)], 0.0)
    return signal if input.ndim == 3 else shape.squeeze(signal, 0)
