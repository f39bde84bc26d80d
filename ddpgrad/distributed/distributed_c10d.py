"""`torch.distributed.distributed_c10d`: the file where PyTorch defines what `torch.distributed` offers."""

from __future__ import annotations

from typing import Any

from . import *  # noqa: F403 - every public name
from .process_group import GroupMember, default_group, get_global_rank

_get_default_group = default_group
_get_global_rank = get_global_rank


def _rank_not_in_group(group: Any) -> bool:
    """Whether `group` is what `new_group` gave to a rank outside of it."""
    return group is GroupMember.NON_GROUP_MEMBER
