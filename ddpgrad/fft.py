"""`torch.fft`: discrete Fourier transforms."""

from .ops.signal import fourier as _fourier

fft = _fourier.fft_fft
fft2 = _fourier.fft_fft2
fftfreq = _fourier.fftfreq
fftn = _fourier.fft_fftn
fftshift = _fourier.fft_fftshift
hfft = _fourier.fft_hfft
hfft2 = _fourier.fft_hfft2
hfftn = _fourier.fft_hfftn
ifft = _fourier.fft_ifft
ifft2 = _fourier.fft_ifft2
ifftn = _fourier.fft_ifftn
ifftshift = _fourier.fft_ifftshift
ihfft = _fourier.fft_ihfft
ihfft2 = _fourier.fft_ihfft2
ihfftn = _fourier.fft_ihfftn
irfft = _fourier.fft_irfft
irfft2 = _fourier.fft_irfft2
irfftn = _fourier.fft_irfftn
rfft = _fourier.fft_rfft
rfft2 = _fourier.fft_rfft2
rfftfreq = _fourier.rfftfreq
rfftn = _fourier.fft_rfftn
