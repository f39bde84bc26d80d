"""Boxes (x1, y1, x2, y2) and their overlap."""

from __future__ import annotations

import numpy as np

from ... import Tensor, from_numpy


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Non-maximum suppression: the boxes (N, 4) that overlap none of a higher score by more than the threshold.

    Returns their places, int64, the highest score (N,) first. RuntimeError for other shapes.
    """
    if dets.ndim != 2 or dets.shape[1] != 4 or scores.shape != dets.shape[:1]:
        raise RuntimeError(
            f"nms(): expected boxes (N, 4) and scores (N,), got shapes {list(dets.shape)} and {list(scores.shape)}"
        )
    values = dets.detach().cpu().numpy()
    order = np.argsort(-scores.detach().cpu().numpy(), kind="stable")
    x1, y1, x2, y2 = values[order].T
    areas = (x2 - x1) * (y2 - y1)
    left = np.ones(len(order), bool)
    for i in range(len(order)):
        if left[i]:
            rest = i + 1 + np.flatnonzero(left[i + 1 :])
            width = np.minimum(x2[i], x2[rest]) - np.maximum(x1[i], x1[rest])
            height = np.minimum(y2[i], y2[rest]) - np.maximum(y1[i], y1[rest])
            common = np.maximum(width, 0) * np.maximum(height, 0)
            with np.errstate(invalid="ignore"):  # 0 / 0 for boxes without an area, which suppress nothing
                left[rest[common / (areas[i] + areas[rest] - common) > iou_threshold]] = False
    return from_numpy(order[left]).to(dets.device)
