"""Policies on top of the collectives, under the names that PyTorch gives them."""

from . import checkpoint_wrapper as checkpoint_wrapper, ddp_comm_hooks as ddp_comm_hooks, diloco as diloco, model_averaging as model_averaging
from ..ddp.join import Join as Join, Joinable as Joinable, JoinHook as JoinHook
