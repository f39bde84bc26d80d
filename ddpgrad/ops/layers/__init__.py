"""Ops behind layers: convolution, pooling, attention, recurrence, normalisation, dropout, embedding."""
