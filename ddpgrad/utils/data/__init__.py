"""Data loading: datasets, samplers, and the DataLoader that turns them into batches."""

from ...core.face import serve

serve(__name__)
