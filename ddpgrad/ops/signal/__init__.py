"""Fourier transforms, spectrograms and window functions."""
