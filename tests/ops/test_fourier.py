"""Fourier transforms: NumPy's values, gradients, spectrograms and windows."""

import numpy as np
import pytest
import scipy.fft

import ddpgrad as torch

ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = [
    "fft2", "ifft2", "fftn", "ifftn", "rfft2", "irfft2", "rfftn", "irfftn", "hfft2", "hfftn", "ihfft2",
    "ihfftn",
]  # fmt: skip
REAL = {"rfft", "ihfft", "rfft2", "rfftn", "ihfft2", "ihfftn"}


def signal(name: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape)
    return x if name in REAL else x + 1j * rng.standard_normal(shape)


@pytest.mark.parametrize("norm", [None, "forward", "ortho"])
@pytest.mark.parametrize("n", [None, 5, 12])
@pytest.mark.parametrize("name", ONE)
def test_transform_along_one_dimension(name: str, n: int | None, norm: str | None):
    x = signal(name, 3, 8, 2)
    out = getattr(torch.fft, name)(torch.tensor(x), n, 1, norm)
    np.testing.assert_allclose(out.numpy(), getattr(scipy.fft, name)(x, n, 1, norm), atol=1e-13)


@pytest.mark.parametrize("s", [None, (3, 6)])
@pytest.mark.parametrize("name", MANY)
def test_transform_along_several_dimensions(name: str, s: tuple[int, ...] | None):
    x = signal(name, 2, 5, 4)
    axes = (-2, -1) if name.endswith("2") or s else (0, 1, 2)
    out = getattr(torch.fft, name)(torch.tensor(x), s)
    np.testing.assert_allclose(out.numpy(), getattr(scipy.fft, name)(x, s, axes), atol=1e-13)


@pytest.mark.parametrize("norm", ["forward", "backward", "ortho"])
@pytest.mark.parametrize("n", [5, 6])
@pytest.mark.parametrize("name", ["fft", "ifft2", "rfft", "irfft", "hfft", "ihfft", "rfftn", "irfftn"])
def test_gradients(name: str, n: int, norm: str):
    function = getattr(torch.fft, name)
    x = torch.tensor(signal("rfft", 2, 4, 2)).requires_grad_()

    def of_parts(x: torch.Tensor) -> torch.Tensor:
        given = x[..., 0] if name in REAL else torch.view_as_complex(x)
        out = function(given, n, norm=norm) if name in ONE else function(given, (3, n), norm=norm)
        return torch.view_as_real(out) if out.dtype.is_complex else out

    assert torch.autograd.gradcheck(of_parts, (x,))
    assert torch.autograd.gradgradcheck(of_parts, (x,), fast_mode=True)


def test_the_gradient_of_a_real_input_is_real():
    x = torch.randn(6).requires_grad_()
    torch.fft.fft(x).abs().sum().backward()
    assert x.grad.dtype is torch.float32 and x.grad.shape == (6,)


def test_precision_is_kept_and_integers_become_floats():
    assert torch.fft.fft(torch.ones(4)).dtype is torch.complex64
    assert torch.fft.rfft(torch.ones(4, dtype=torch.float64)).dtype is torch.complex128
    assert torch.fft.irfft(torch.arange(3)).dtype is torch.float32


def test_frequencies_and_shifts():
    for n in (4, 5):
        np.testing.assert_allclose(torch.fft.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5))
        np.testing.assert_allclose(torch.fft.rfftfreq(n, 0.5).numpy(), np.fft.rfftfreq(n, 0.5))
        x = torch.arange(2 * n).reshape(2, n)
        np.testing.assert_array_equal(torch.fft.fftshift(x).numpy(), np.fft.fftshift(x.numpy()))
        assert torch.equal(torch.fft.ifftshift(torch.fft.fftshift(x, 1), 1), x)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: torch.fft.rfft(torch.ones(3, dtype=torch.complex64)), "expects a real input tensor"),
        (lambda: torch.fft.fft(torch.ones(3), 0), r"Invalid number of data points \(0\)"),
        (lambda: torch.fft.fft(torch.ones(3), norm="sqrt"), "Invalid normalization mode"),
        (lambda: torch.fft.fftn(torch.ones(3, 3), dim=(0, 0)), "dims must be unique"),
        (lambda: torch.fft.fft(torch.ones(3).half()), "Unsupported dtype float16"),
        (lambda: torch.fft.fftfreq(4, dtype=torch.int64), "requires a floating point or complex dtype"),
        (lambda: torch.fft.fft(torch.ones(3), 2.0), "must be tuple of ints"),
        (lambda: torch.hann_window(4.5), "must be tuple of ints"),
    ],
)
def test_wrong_arguments(call, text: str):
    with pytest.raises((RuntimeError, TypeError), match=text):
        call()


@pytest.mark.parametrize("options", [{}, {"normalized": True}, {"onesided": False}, {"hop_length": 3}])
def test_a_signal_comes_back_from_its_spectrogram(options: dict):
    x = torch.tensor(signal("rfft", 2, 60)).requires_grad_()
    window = torch.hann_window(12, dtype=torch.float64)
    spectrogram = torch.stft(x, 16, win_length=12, window=window, return_complex=True, **options)
    back = torch.istft(spectrogram, 16, win_length=12, window=window, length=60, **options)
    np.testing.assert_allclose(back.numpy(force=True), x.numpy(force=True), atol=1e-12)
    back.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.ones((2, 60)), atol=1e-10)


def test_a_frame_of_a_spectrogram_is_the_transform_of_the_windowed_signal():
    x, window = torch.tensor(signal("rfft", 40)), torch.hamming_window(8, dtype=torch.float64)
    out = torch.stft(x, 8, 4, window=window, center=False, return_complex=True)
    assert out.shape == (5, 9)
    expected = np.fft.rfft(x.numpy()[8:16] * window.numpy())
    np.testing.assert_allclose(out[:, 2].numpy(), expected, atol=1e-13)
    with pytest.raises(RuntimeError, match="return_complex parameter"):
        torch.stft(x, 8)


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", ("kaiser", 5.0)])
@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("length", [0, 1, 2, 9, 10])
def test_windows_are_scipys(name: str | tuple[str, float], periodic: bool, length: int):
    kind = name if isinstance(name, str) else name[0]
    options = {} if isinstance(name, str) else {"beta": name[1]}
    out = getattr(torch, f"{kind}_window")(length, periodic, dtype=torch.float64, **options)
    from scipy.signal import get_window  # here, as its package takes long to load

    expected = get_window(name, length, fftbins=periodic) if length else np.zeros(0)
    np.testing.assert_allclose(out.numpy(), expected, atol=1e-14)
