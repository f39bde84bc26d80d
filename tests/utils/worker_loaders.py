"""Loaders with workers, and their batches as plain values."""

import os

from ddpgrad.utils import data

WORKERS = min(2, len(os.sched_getaffinity(0)))  # more than the cores would be warned of


def loader(dataset, *args, **options):
    return data.DataLoader(dataset, *args, num_workers=options.pop("num_workers", WORKERS), **options)


def plain(batch):
    if isinstance(batch, dict):
        return {key: plain(part) for key, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [plain(part) for part in batch]
    return batch.tolist() if hasattr(batch, "tolist") else batch


def batches(*args, **options):
    return [plain(batch) for batch in loader(*args, **options)]
