"""Policies on top of the collectives, under the names that PyTorch gives them."""

from . import checkpoint_wrapper as checkpoint_wrapper, ddp_comm_hooks as ddp_comm_hooks, diloco as diloco, join as join, model_averaging as model_averaging
