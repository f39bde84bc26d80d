"""Averages gradients over all ranks for some steps, then over each rank's subgroup: the gradients of post-local SGD.

Source: https://arxiv.org/abs/1808.07217. An averager of `model_averaging` brings the subgroups together.
"""

from __future__ import annotations

from typing import Any

from ....futures import Future, finished
from ...ddp.comm_hooks import GradBucket
from ...process_group import ProcessGroup, new_subgroups
from .default_hooks import allreduce_hook


class PostLocalSGDState:
    """When local steps begin, and over whom gradients are averaged then.

    process_group: the ranks before; None for all. subgroup: those after; None for the ranks of this host.
    post_local_gradient_allreduce: False leaves each rank its own gradients after `start_localSGD_iter` steps.
    """

    def __init__(
        self,
        process_group: ProcessGroup | None,
        subgroup: ProcessGroup | None,
        start_localSGD_iter: int,
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step when its last bucket comes."""
        self.iter += bucket.is_last()


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Any]:
    """Average the bucket over the group whose turn it is."""
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(state.process_group, bucket)
    if not state.post_local_gradient_allreduce:
        return finished(bucket.buffer())
    if state.subgroup is None:
        state.subgroup, _ = new_subgroups()
    return allreduce_hook(state.subgroup, bucket)


vars(post_localSGD_hook)["replicas_differ"] = True
